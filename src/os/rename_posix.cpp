// Renames that never replace, on Linux.
#include "os/rename_posix.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "os/errno_error.hpp"

namespace bitsnap::os {

int rename_exclusive(const RenamePath& from, const RenamePath& to) noexcept {
  const auto rename = [&] { return ::renameat2(from.directory, from.name, to.directory, to.name, RENAME_NOREPLACE); };
  return call_again(rename) == 0 ? 0 : errno;
}

int rename_by_link(const RenamePath& from, const RenamePath& to) noexcept {
  if (call_again([&] { return ::linkat(from.directory, from.name, to.directory, to.name, 0); }) != 0) return errno;
  if (::unlinkat(from.directory, from.name, 0) == 0) return 0;
  const int error = errno;
  ::unlinkat(to.directory, to.name, 0);  // `from` could not be removed, so this was no move: undo it
  return error;
}

int rename_by_placeholder(const RenamePath& from, const RenamePath& to) noexcept {
  if (::faccessat(from.directory, from.name, F_OK, 0) != 0) return errno;
  const int fd = ::openat(to.directory, to.name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  ::close(fd);
  if (::renameat(from.directory, from.name, to.directory, to.name) == 0) return 0;
  const int error = errno;
  ::unlinkat(to.directory, to.name, 0);
  return error;
}

int rename_no_replace(const RenamePath& from, const RenamePath& to) noexcept {
  int error = rename_exclusive(from, to);
  if (error == EINVAL || error == ENOSYS || error == EPERM || error == EOPNOTSUPP) error = rename_by_link(from, to);
  if (error == EPERM || error == ENOSYS || error == EOPNOTSUPP) error = rename_by_placeholder(from, to);
  return error;
}

}  // namespace bitsnap::os
