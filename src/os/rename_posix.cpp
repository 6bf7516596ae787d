// Renames that never replace, on Linux.
#include "os/rename_posix.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "os/errno_error.hpp"

namespace bitsnap::os {

int rename_exclusive(const char* from, const char* to) noexcept {
  const auto rename = [&] { return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE); };
  return call_again(rename) == 0 ? 0 : errno;
}

int rename_by_link(const char* from, const char* to) noexcept {
  if (call_again([&] { return ::link(from, to); }) != 0) return errno;
  if (::unlink(from) == 0) return 0;
  const int error = errno;
  ::unlink(to);  // `from` could not be removed, so this was no move: undo it
  return error;
}

int rename_by_placeholder(const char* from, const char* to) noexcept {
  if (::access(from, F_OK) != 0) return errno;
  const int fd = ::open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  ::close(fd);
  if (::rename(from, to) == 0) return 0;
  const int error = errno;
  ::unlink(to);
  return error;
}

int rename_no_replace(const char* from, const char* to) noexcept {
  int error = rename_exclusive(from, to);
  if (error == EINVAL || error == ENOSYS || error == EPERM || error == EOPNOTSUPP) error = rename_by_link(from, to);
  if (error == EPERM || error == ENOSYS || error == EOPNOTSUPP) error = rename_by_placeholder(from, to);
  return error;
}

}  // namespace bitsnap::os
