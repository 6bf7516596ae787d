// BITSNAP_TRY(expr) for Result<void> and BITSNAP_ASSIGN(auto x, expr) for a Result with a value return an error to the
// caller. They evaluate the expression once.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <bitsnap/error.hpp>

#define BITSNAP_CONCAT_INNER(a, b) a##b
#define BITSNAP_CONCAT(a, b) BITSNAP_CONCAT_INNER(a, b)

#define BITSNAP_TRY(...)                                          \
  do {                                                            \
    if (auto bitsnap_result = (__VA_ARGS__); !bitsnap_result) {   \
      return ::tl::unexpected(std::move(bitsnap_result).error()); \
    }                                                             \
  } while (false)

#define BITSNAP_ASSIGN_INNER(result, declaration, ...)  \
  auto result = (__VA_ARGS__);                          \
  if (!result) {                                        \
    return ::tl::unexpected(std::move(result).error()); \
  }                                                     \
  declaration = std::move(result).value()  // NOLINT(bugprone-macro-parentheses)

#define BITSNAP_ASSIGN(declaration, ...) \
  BITSNAP_ASSIGN_INNER(BITSNAP_CONCAT(bitsnap_result_, __LINE__), declaration, __VA_ARGS__)

namespace bitsnap {

// `return fail(ErrorKind::corrupt, "...")` from any function that returns a Result.
[[nodiscard]] inline tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error(kind, std::move(message)));
}

// Puts the name of the file before the message, unless the message contains it already, as messages of the operating
// system do.
[[nodiscard]] inline Error name_file(Error error, std::string_view path) {
  if (error.message().find(path) != std::string::npos) return error;
  return std::move(error).within(path);
}

}  // namespace bitsnap
