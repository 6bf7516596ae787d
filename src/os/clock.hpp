// Monotonic time, for measuring durations, and wall-clock time, for dates. Thread-safe.
#pragma once

#include <cstdint>

namespace bitsnap::os {

// Nanoseconds since some fixed moment; does not jump when the wall clock is set.
[[nodiscard]] std::uint64_t monotonic_ns() noexcept;

// The same, but it goes on while the machine sleeps.
[[nodiscard]] std::uint64_t sleepless_ns() noexcept;

// Milliseconds since the Unix epoch, by a clock that may be set, even backwards.
[[nodiscard]] std::int64_t unix_time_ms() noexcept;

class Stopwatch {
 public:
  Stopwatch() noexcept : start_ns_(monotonic_ns()) {}

  [[nodiscard]] std::uint64_t elapsed_ns() const noexcept { return monotonic_ns() - start_ns_; }
  [[nodiscard]] double elapsed_seconds() const noexcept { return static_cast<double>(elapsed_ns()) * 1e-9; }

 private:
  std::uint64_t start_ns_;
};

// A timeout that never ends.
inline constexpr std::int64_t kNoTimeout = -1;

// The end of a wait that may be interrupted several times.
class Deadline {
 public:
  // `timeout_ms` from now. 0: do not wait; negative: no limit.
  explicit Deadline(std::int64_t timeout_ms) noexcept;

  // Milliseconds that remain, rounded up so that no wait ends early: 0 after the end, -1 without a limit. At most an
  // hour; callers wait again.
  [[nodiscard]] int left_ms() const noexcept;

 private:
  std::uint64_t end_ns_;
};

}  // namespace bitsnap::os
