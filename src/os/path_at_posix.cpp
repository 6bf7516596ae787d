// Opens directories without reading them, so that the permission to pass through them is enough, as for a path.
#include "os/path_at_posix.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"

namespace bitsnap::os {

bool is_below(std::string_view path, std::string_view root) noexcept {
  if (root.empty() || !path.starts_with(root)) return false;
  return root.ends_with('/') || path.substr(root.size()).starts_with('/');
}

Result<PathAt> PathAt::find(std::string_view operation, const std::string& path, const std::string& root) {
  BITSNAP_TRY(check_path(operation, path));
  PathAt at;
  at.name_ = path;
  if (!is_below(path, root)) return at;
  at.follows_links_ = false;
  // The first name is the whole path to the directory directly below the root: only the end of a path is checked for
  // links, so links may lead to the root.
  std::size_t begin = 0;
  for (std::size_t end = path.find('/', root.size() + 1); end != std::string::npos; end = path.find('/', begin)) {
    at.name_ = path.substr(begin, end - begin);
    Descriptor next = at.open(O_PATH | O_DIRECTORY);
    if (!next.is_open()) {
      const int error = errno;
      return at.fail_open(error, std::string(operation) + " " + path + ": open", path.substr(0, end), "a directory");
    }
    at.directory_ = std::move(next);
    begin = end + 1;
  }
  at.name_ = path.substr(begin);
  return at;
}

int PathAt::directory() const noexcept { return directory_.is_open() ? directory_.get() : AT_FDCWD; }

int PathAt::stat_flags() const noexcept { return follows_links_ ? 0 : AT_SYMLINK_NOFOLLOW; }

Descriptor PathAt::open(int flags, unsigned mode) const noexcept {
  return open_descriptor_at(directory(), name(), follows_links_ ? flags : flags | O_NOFOLLOW, mode);
}

tl::unexpected<Error> PathAt::fail_open(int error, std::string_view operation, std::string_view path,
                                        std::string_view expected) const {
  struct ::stat info{};
  const bool may_be_link = !follows_links_ && (error == ELOOP || error == ENOTDIR);
  if (may_be_link && ::fstatat(directory(), name(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode)) {
    return fail(ErrorKind::invalid_argument, std::string(operation)
                                                 .append(" ")
                                                 .append(path)
                                                 .append(": it is a symbolic link, expected ")
                                                 .append(expected)
                                                 .append("; remove the link, or replace it with what it leads to"));
  }
  return fail_errno(error, operation, path);
}

}  // namespace bitsnap::os
