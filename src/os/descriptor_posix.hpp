// Opening and copying descriptors of the system. Of this floor only. Both give one that is not open, with errno set, if
// the system refuses.
#pragma once

#include "os/descriptor.hpp"

namespace bitsnap::os {

// open(), closed on exec, and again where a signal interrupts it.
[[nodiscard]] Descriptor open_descriptor(const char* path, int flags, unsigned mode = 0) noexcept;

// Another descriptor of the same thing, of the number `lowest` or above it.
[[nodiscard]] Descriptor duplicate_descriptor(int fd, int lowest = 0) noexcept;

}  // namespace bitsnap::os
