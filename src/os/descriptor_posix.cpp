// Opening, copying and closing descriptors.
#include "os/descriptor_posix.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace bitsnap::os {

// Not retried after a signal: the descriptor is closed, and another thread may have its number already.
void Descriptor::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Descriptor open_descriptor(const char* path, int flags, unsigned mode) noexcept {
  int fd;
  do {
    fd = ::open(path, flags | O_CLOEXEC | O_NOCTTY, static_cast<mode_t>(mode));
  } while (fd < 0 && errno == EINTR);
  return Descriptor(fd);
}

Descriptor duplicate_descriptor(int fd, int lowest) noexcept {
  Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, lowest));
  // fcntl() returns EINVAL for a number above the limit on open files.
  if (!copy.is_open() && errno == EINVAL) errno = EMFILE;
  return copy;
}

}  // namespace bitsnap::os
