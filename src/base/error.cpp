// Names of the error kinds and the adding of context to an error.
#include <bitsnap/error.hpp>

#include <string>

namespace bitsnap {

std::string_view error_kind_name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument: return "invalid_argument";
    case ErrorKind::not_found: return "not_found";
    case ErrorKind::unsupported: return "unsupported";
    case ErrorKind::truncated: return "truncated";
    case ErrorKind::corrupt: return "corrupt";
    case ErrorKind::io: return "io";
    case ErrorKind::resource_exhausted: return "resource_exhausted";
    case ErrorKind::busy: return "busy";
    case ErrorKind::cancelled: return "cancelled";
    case ErrorKind::internal: return "internal";
  }
  return "unknown";
}

Error Error::within(std::string_view where) && {
  std::string message;
  message.reserve(where.size() + 2 + message_.size());
  message.append(where).append(": ").append(message_);
  return Error(kind_, std::move(message));
}

}  // namespace bitsnap
