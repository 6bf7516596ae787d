// Errors, and Result<T>, which every function that can fail returns.
//
// No function of bitsnap throws, prints, aborts or exits. The message of an Error says what was being done, where
// (file, offset, tensor, chunk), what was expected and what was found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace bitsnap {

// Each kind is defined by whose fault the error is. The exit codes of the command have the same order.
enum class ErrorKind : std::uint8_t {
  invalid_argument = 1,    // the caller: bitsnap cannot accept an argument or an input
  not_found = 2,           // the caller or the system: a file, tensor, base or step does not exist
  unsupported = 3,         // this version: the file has a newer format, or an unknown codec or feature; upgrade
  truncated = 4,           // the data: it ends too early
  corrupt = 5,             // the data: it contradicts itself or its hashes
  io = 6,                  // the system: an operation of the operating system failed
  resource_exhausted = 7,  // the caller or the system: a limit was reached, or memory is exhausted
  busy = 8,                // another process or thread: it holds what this call needs
  cancelled = 9,           // the caller: it asked to stop
  internal = 10,           // bitsnap: a bug; please report it
};

// The name of the enumerator: "corrupt", "io".
[[nodiscard]] std::string_view error_kind_name(ErrorKind kind) noexcept;

// Errors that a caller can handle beyond their kind, so that no caller parses messages.
enum class ErrorCode : std::uint8_t {
  none,
  adam_needed,  // a loss rule needs Adam's numbers for the tensor that field() names
  no_space,     // io: the disk, or the quota on it, is full
  read_only,    // io: the file system is mounted read-only
  wrong_base,   // invalid_argument: weights are not what a patch applies to
};

// A kind, a message for people, and for programs a code and the argument or setting that is wrong. Names and paths in
// the message may come from anywhere, so it is made printable (text.hpp). Cheap to move.
class [[nodiscard]] Error {
 public:
  Error(ErrorKind kind, std::string message);

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  // Name of the argument, setting or tensor that is wrong; empty where the error is about something else.
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // Puts "where: " before the message. A caller uses it to add the file, tensor or chunk.
  Error within(std::string_view where) &&;
  Error with_code(ErrorCode code) && {
    code_ = code;
    return std::move(*this);
  }
  Error about(std::string_view field) && {
    field_ = field;
    return std::move(*this);
  }

 private:
  ErrorKind kind_;
  ErrorCode code_ = ErrorCode::none;
  std::string field_;
  std::string message_;
};

// The name of the enumerator: "no_space"; for ErrorCode::none the name of the kind.
[[nodiscard]] std::string_view error_code_name(const Error& error) noexcept;
[[nodiscard]] std::optional<ErrorCode> error_code_from_name(std::string_view name) noexcept;

template <typename T>
using Result = tl::expected<T, Error>;

}  // namespace bitsnap
