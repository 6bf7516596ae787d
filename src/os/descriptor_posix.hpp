// Opens and duplicates file descriptors. Used by src/os only. All return a closed Descriptor, with errno set, if the
// system call fails. Containers may refuse newer system calls; the last two functions do without them.
#pragma once

#include "os/descriptor.hpp"

namespace bitsnap::os {

// open() with close-on-exec, retried as call_again() says (errno_error.hpp).
[[nodiscard]] Descriptor open_descriptor(const char* path, int flags, unsigned mode = 0) noexcept;
// The same for a path relative to an open directory, or AT_FDCWD.
[[nodiscard]] Descriptor open_descriptor_at(int directory, const char* path, int flags, unsigned mode = 0) noexcept;

// Duplicates `fd` to a number that is at least `lowest`.
[[nodiscard]] Descriptor duplicate_descriptor(int fd, int lowest = 0) noexcept;

struct Pipe {
  Descriptor reader;
  Descriptor writer;
};
// `flags`: O_CLOEXEC, O_NONBLOCK.
[[nodiscard]] Pipe open_pipe(int flags) noexcept;

// Accepts a connection to a listening socket, with close-on-exec.
[[nodiscard]] Descriptor accept_descriptor(int listener) noexcept;

}  // namespace bitsnap::os
