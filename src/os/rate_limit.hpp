// So many bytes each second, and no more.
#pragma once

#include <cstdint>
#include <mutex>

namespace bitsnap::os {

// Thread-safe: all threads share the rate.
class RateLimit {
 public:
  // 0: no limit.
  void set(std::uint64_t bytes_per_second);

  // Plans to send `bytes` as soon as what was planned before is through. Returns the nanoseconds until then, which the
  // caller waits before it sends them.
  [[nodiscard]] std::uint64_t plan(std::uint64_t bytes);

 private:
  std::mutex mutex_;
  std::uint64_t bytes_per_second_ = 0;
  std::uint64_t free_at_ns_ = 0;  // monotonic
};

}  // namespace bitsnap::os
