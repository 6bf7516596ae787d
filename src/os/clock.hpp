// Monotonic time: for measuring, never for dates; and the date, never for measuring. Thread-safe.
#pragma once

#include <cstdint>

namespace bitsnap::os {

// Nanoseconds since some fixed moment; does not jump when the wall clock is set.
[[nodiscard]] std::uint64_t monotonic_ns() noexcept;

// Milliseconds since the Unix epoch, by a clock that may be set, also backwards.
[[nodiscard]] std::int64_t unix_time_ms() noexcept;

class Stopwatch {
 public:
  Stopwatch() noexcept : start_ns_(monotonic_ns()) {}

  [[nodiscard]] std::uint64_t elapsed_ns() const noexcept { return monotonic_ns() - start_ns_; }
  [[nodiscard]] double elapsed_seconds() const noexcept { return static_cast<double>(elapsed_ns()) * 1e-9; }

 private:
  std::uint64_t start_ns_;
};

// What a wait takes for its limit where it has none.
inline constexpr std::int64_t kNoTimeout = -1;

// The moment until which something is waited for, however often the wait is interrupted.
class Deadline {
 public:
  // Of a limit from now on: 0 for no wait at all, a negative one for no limit.
  explicit Deadline(std::int64_t timeout_ms) noexcept;

  // What remains, rounded up, so that whoever waits that long is not early: 0 when it is over, -1 without a limit.
  // At most an hour, which is what a wait in pieces takes at once.
  [[nodiscard]] int left_ms() const noexcept;

 private:
  std::uint64_t end_ns_;
};

}  // namespace bitsnap::os
