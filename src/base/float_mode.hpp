// How floats are computed: by IEEE 754, to nearest, with subnormal numbers, whatever the calling thread has set.
// Frameworks let their threads flush subnormals to zero, and bytes that are stored must not depend on it.
//
// A FloatMode holds for the thread that made it for as long as it lives. What computes within it is to be a function of
// another file, which no compiler moves across.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bitsnap {

class FloatMode {
 public:
  FloatMode() noexcept : before_(get()) { set(kIeee); }
  ~FloatMode() { set(before_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__)
  using Word = std::uint32_t;
  static constexpr Word kIeee = 0x1f80;  // all exceptions masked
  static Word get() noexcept { return _mm_getcsr(); }
  static void set(Word word) noexcept { _mm_setcsr(word); }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kIeee = 0;
  static Word get() noexcept {
    Word word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void set(Word word) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
  using Word = std::uint32_t;
  static constexpr Word kIeee = 0;
  static Word get() noexcept { return 0; }
  static void set(Word) noexcept {}
#endif

  Word before_;
};

}  // namespace bitsnap
