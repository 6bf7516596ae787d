// Names of the error kinds, and context for messages.
#include <bitsnap/error.hpp>

#include <array>
#include <string>
#include <utility>

#include <bitsnap/text.hpp>

namespace bitsnap {
namespace {

constexpr std::array<std::pair<ErrorCode, std::string_view>, 4> kCodeNames = {{{ErrorCode::adam_needed, "adam_needed"},
                                                                               {ErrorCode::no_space, "no_space"},
                                                                               {ErrorCode::read_only, "read_only"},
                                                                               {ErrorCode::wrong_base, "wrong_base"}}};

}  // namespace

Error::Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {
  if (!is_printable(message_)) message_ = printable(message_);
}

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

std::string_view error_code_name(const Error& error) noexcept {
  for (const auto& [code, name] : kCodeNames) {
    if (error.code() == code) return name;
  }
  return error_kind_name(error.kind());
}

std::optional<ErrorCode> error_code_from_name(std::string_view name) noexcept {
  for (const auto& [code, known] : kCodeNames) {
    if (name == known) return code;
  }
  return std::nullopt;
}

Error Error::within(std::string_view where) && {
  message_.insert(0, ": ").insert(0, printable(where));
  return std::move(*this);
}

}  // namespace bitsnap
