// Opening, copying and closing descriptors.
#include "os/descriptor_posix.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "os/errno_error.hpp"

namespace bitsnap::os {
namespace {

void set_flags(int fd, int flags) noexcept {
  if ((flags & O_CLOEXEC) != 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  if ((flags & O_NONBLOCK) != 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

// Not retried after a signal: the descriptor is closed, and another thread may have its number already.
void Descriptor::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Descriptor open_descriptor(const char* path, int flags, unsigned mode) noexcept {
  return open_descriptor_at(AT_FDCWD, path, flags, mode);
}

Descriptor open_descriptor_at(int directory, const char* path, int flags, unsigned mode) noexcept {
  return Descriptor(
      call_again([&] { return ::openat(directory, path, flags | O_CLOEXEC | O_NOCTTY, static_cast<mode_t>(mode)); }));
}

Descriptor duplicate_descriptor(int fd, int lowest) noexcept {
  Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, lowest));
  // fcntl() returns EINVAL for a number above the limit on open files.
  if (!copy.is_open() && errno == EINVAL) errno = EMFILE;
  return copy;
}

Pipe open_pipe(int flags) noexcept {
  int ends[2];
  bool is_open = ::pipe2(ends, flags) == 0;
#ifdef SYS_pipe
  // By number: the function of the C library makes the call that was refused.
  if (!is_open && is_refused_call(errno)) {
    is_open = ::syscall(SYS_pipe, ends) == 0;
    for (int i = 0; is_open && i < 2; ++i) set_flags(ends[i], flags);
  }
#endif
  if (!is_open) return {};
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Descriptor accept_descriptor(int listener) noexcept {
  Descriptor accepted(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (accepted.is_open() || !is_refused_call(errno)) return accepted;
  accepted = Descriptor(::accept(listener, nullptr, nullptr));
  if (accepted.is_open()) set_flags(accepted.get(), O_CLOEXEC);
  return accepted;
}

}  // namespace bitsnap::os
