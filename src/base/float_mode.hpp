// Sets IEEE 754 floating point for the calling thread: round to nearest, with subnormal numbers. Frameworks let their
// threads flush subnormals to zero, and stored bytes must not depend on that.
//
// A FloatMode restores the previous mode when it is destroyed. Put the computation in a function of another source
// file: the compiler may move operations of the same file out of the mode's scope.
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
