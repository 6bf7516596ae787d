// Opening, copying and closing descriptors.
#include "os/descriptor_posix.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace bitsnap::os {

// Not again where a signal interrupts it: the descriptor is gone, and may be another's already.
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
  // So the system calls a number that the limit on open files forbids.
  if (!copy.is_open() && errno == EINVAL) errno = EMFILE;
  return copy;
}

}  // namespace bitsnap::os
