// Opens and duplicates file descriptors. Used by src/os only. Both return a closed Descriptor, with errno set, if the
// system call fails.
#pragma once

#include "os/descriptor.hpp"

namespace bitsnap::os {

// open() with close-on-exec, retried when a signal interrupts it.
[[nodiscard]] Descriptor open_descriptor(const char* path, int flags, unsigned mode = 0) noexcept;

// Duplicates `fd` to a number that is at least `lowest`.
[[nodiscard]] Descriptor duplicate_descriptor(int fd, int lowest = 0) noexcept;

}  // namespace bitsnap::os
