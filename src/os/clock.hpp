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

}  // namespace bitsnap::os
