// Waiting for one descriptor. Of this floor only. Thread-safe.
#pragma once

#include "os/clock.hpp"

namespace bitsnap::os {

// Waits until one of the events of poll() holds, an end or an error of what it is of included, whatever signals come in
// between: 0, ETIMEDOUT where the deadline was first, or an errno.
[[nodiscard]] int poll_one(int fd, short events, const Deadline& deadline) noexcept;

}  // namespace bitsnap::os
