// Waits for one descriptor. Used by src/os only. Thread-safe.
#pragma once

#include "os/clock.hpp"

namespace bitsnap::os {

// Waits, across signals, until poll() reports one of the events, a hang-up or an error. Returns 0, ETIMEDOUT after the
// deadline, or an errno.
[[nodiscard]] int poll_one(int fd, short events, const Deadline& deadline) noexcept;

}  // namespace bitsnap::os
