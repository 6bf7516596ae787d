// What an input costs: a fuzz target fails if one takes more memory or time than its size justifies.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#if defined(__SANITIZE_ADDRESS__)
#define BITSNAP_COUNTS_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BITSNAP_COUNTS_MEMORY 1
#endif
#endif
#if defined(BITSNAP_COUNTS_MEMORY)
#include <sanitizer/allocator_interface.h>
#endif

namespace bitsnap {

struct CostBound {
  std::uint64_t floor_bytes;
  std::uint64_t bytes_per_byte;
  double floor_seconds;  // of processor time, with sanitizers
  double seconds_per_byte;
};

// From its construction to its destruction, which aborts above the bound. Counts memory only with AddressSanitizer, and
// time only of the calling thread. One at a time.
class CostCheck {
 public:
  CostCheck(std::size_t input_bytes, const CostBound& bound) : input_bytes_(input_bytes), bound_(bound) {
#if defined(BITSNAP_COUNTS_MEMORY)
    [[maybe_unused]] static const int installed =
        __sanitizer_install_malloc_and_free_hooks(&CostCheck::count, &CostCheck::discount);
#endif
    live_bytes = 0;
    peak_bytes = 0;
  }
  CostCheck(const CostCheck&) = delete;
  CostCheck& operator=(const CostCheck&) = delete;

  ~CostCheck() {
    const double seconds = now() - start_;
    const std::int64_t peak = peak_bytes;
    const auto size = static_cast<double>(input_bytes_);
    const bool fits = static_cast<double>(peak) <=
                          static_cast<double>(bound_.floor_bytes) + static_cast<double>(bound_.bytes_per_byte) * size &&
                      seconds <= bound_.floor_seconds + bound_.seconds_per_byte * size;
    if (fits) return;
    std::fprintf(stderr, "an input of %zu bytes took %lld bytes of memory and %.2f s\n", input_bytes_,
                 static_cast<long long>(peak), seconds);
    std::abort();
  }

 private:
#if defined(BITSNAP_COUNTS_MEMORY)
  static void count(const volatile void*, std::size_t size) {
    const std::int64_t live = live_bytes += static_cast<std::int64_t>(size);
    if (live > peak_bytes) peak_bytes = live;
  }
  static void discount(const volatile void* memory) {
    if (memory == nullptr) return;
    live_bytes -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(memory));
  }
#endif

  static double now() {
    std::timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  inline static std::atomic<std::int64_t> live_bytes = 0;
  inline static std::atomic<std::int64_t> peak_bytes = 0;

  std::size_t input_bytes_;
  CostBound bound_;
  double start_ = now();
};

}  // namespace bitsnap
