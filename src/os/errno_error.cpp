// Maps errno values to kinds of error.
#include "os/errno_error.hpp"

#include <cctype>
#include <system_error>

#include "base/try.hpp"

namespace bitsnap::os {

ErrorKind errno_kind(int error) noexcept {
  switch (error) {
    case ENOENT:
    case ESRCH:
    case ENXIO:
    case ENODEV: return ErrorKind::not_found;

    case EEXIST:
    case EISDIR:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV: return ErrorKind::invalid_argument;

    case ENOMEM: return ErrorKind::resource_exhausted;

    case EBUSY:
    case ETXTBSY:
    case EAGAIN: return ErrorKind::busy;

    default: return ErrorKind::io;
  }
}

ErrorCode errno_code(int error) noexcept {
  if (error == ENOSPC || error == EDQUOT) return ErrorCode::no_space;
  return error == EROFS ? ErrorCode::read_only : ErrorCode::none;
}

bool is_refused_call(int error) noexcept { return error == ENOSYS || error == EPERM; }

Error errno_error(int error, std::string_view operation, std::string_view path) {
  std::string reason;
  try {
    reason = std::generic_category().message(error);
  } catch (const std::exception&) {
    reason = "error " + std::to_string(error);
  }
  if (!reason.empty()) reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
  return Error(errno_kind(error), std::string(operation).append(" ").append(path).append(": ").append(reason))
      .with_code(errno_code(error));
}

tl::unexpected<Error> fail_errno(int error, std::string_view operation, std::string_view path) {
  return tl::unexpected<Error>(errno_error(error, operation, path));
}

Result<void> check_path(std::string_view operation, std::string_view path) {
  if (path.empty()) return fail(ErrorKind::invalid_argument, std::string(operation) + ": the path is empty");
  if (path.find('\0') != std::string_view::npos) {
    return fail(ErrorKind::invalid_argument, std::string(operation) + ": the path contains a NUL byte");
  }
  return {};
}

}  // namespace bitsnap::os
