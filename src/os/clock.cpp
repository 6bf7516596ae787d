// CLOCK_MONOTONIC and CLOCK_REALTIME through the standard library.
#include "os/clock.hpp"

#include <chrono>

namespace bitsnap::os {

std::uint64_t monotonic_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::int64_t unix_time_ms() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

}  // namespace bitsnap::os
