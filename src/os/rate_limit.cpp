#include "os/rate_limit.hpp"

#include <algorithm>

#include "os/clock.hpp"

namespace bitsnap::os {

void RateLimit::set(std::uint64_t bytes_per_second) {
  const std::lock_guard lock(mutex_);
  bytes_per_second_ = bytes_per_second;
}

std::uint64_t RateLimit::plan(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes_per_second_ == 0) return 0;
  const std::uint64_t now = monotonic_ns();
  free_at_ns_ = std::max(free_at_ns_, now);
  const std::uint64_t wait_ns = free_at_ns_ - now;
  free_at_ns_ += static_cast<std::uint64_t>(1e9 * static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
  return wait_ns;
}

}  // namespace bitsnap::os
