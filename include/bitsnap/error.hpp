// Errors and Result: the one way in which bitsnap reports failure.
//
// No function of bitsnap throws, prints, aborts or exits. A function that can fail returns Result<T>; the Error inside
// names what was being done, where (file, offset, tensor, chunk), what was expected and what was found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace bitsnap {

// Each kind is defined by whose fault the error is. The values are also the order of the command's exit codes.
enum class ErrorKind : std::uint8_t {
  invalid_argument = 1,    // the caller: an argument or an input that bitsnap cannot take
  not_found = 2,           // the caller or the world: a file, tensor, base or step that is not there
  unsupported = 3,         // this version: a newer format, an unknown codec or feature; upgrade
  truncated = 4,           // the data: it ends before it should
  corrupt = 5,             // the data: it contradicts itself or its hashes
  io = 6,                  // the world: the operating system refused or failed
  resource_exhausted = 7,  // a limit that the caller set, or memory
  busy = 8,                // somebody else holds it
  cancelled = 9,           // the caller asked to stop
  internal = 10,           // bitsnap: a bug; please report it
};

// "corrupt", "io", ...: the name of the kind as it stands above.
[[nodiscard]] std::string_view error_kind_name(ErrorKind kind) noexcept;

// A kind and a message for people. Cheap to move; copied only when reported twice.
class [[nodiscard]] Error {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  // The same error with "where: " put before its message, for the caller that knows the file, tensor or chunk.
  Error within(std::string_view where) &&;

 private:
  ErrorKind kind_;
  std::string message_;
};

template <typename T>
using Result = tl::expected<T, Error>;

}  // namespace bitsnap
