// CLOCK_MONOTONIC and CLOCK_REALTIME through the standard library, which has no CLOCK_BOOTTIME.
#include "os/clock.hpp"

#include <time.h>

#include <algorithm>
#include <chrono>

namespace bitsnap::os {

std::uint64_t monotonic_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

std::uint64_t sleepless_ns() noexcept {
  struct ::timespec now{};
  if (::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return monotonic_ns();
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::int64_t unix_time_ms() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

namespace {

constexpr std::uint64_t kNever = ~std::uint64_t{0};
constexpr std::uint64_t kNanosecondsPerMillisecond = 1'000'000;

}  // namespace

Deadline::Deadline(std::int64_t timeout_ms) noexcept : end_ns_(kNever) {
  constexpr std::int64_t kMaxMs = std::int64_t{1} << 40;  // 35 years, and no overflow
  if (timeout_ms < 0) return;
  const auto bounded_ms = static_cast<std::uint64_t>(std::min(timeout_ms, kMaxMs));
  end_ns_ = monotonic_ns() + bounded_ms * kNanosecondsPerMillisecond;
}

int Deadline::left_ms() const noexcept {
  constexpr std::uint64_t kHourMs = 3'600'000;
  if (end_ns_ == kNever) return -1;
  const std::uint64_t now_ns = monotonic_ns();
  if (now_ns >= end_ns_) return 0;
  const std::uint64_t left_ns = end_ns_ - now_ns;
  return static_cast<int>(std::min(kHourMs, (left_ns - 1) / kNanosecondsPerMillisecond + 1));
}

}  // namespace bitsnap::os
