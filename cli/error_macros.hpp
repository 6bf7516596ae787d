// Passing errors on: the macros of the library's src/base/try.hpp, which the command cannot include because it sees the
// public headers only. The expression is evaluated once.
#pragma once

#include <string>
#include <utility>

#include <bitsnap/error.hpp>

// Returns the error of a Result<void>.
#define BITSNAP_TRY(...)                                          \
  do {                                                            \
    if (auto bitsnap_result = (__VA_ARGS__); !bitsnap_result) {   \
      return ::tl::unexpected(std::move(bitsnap_result).error()); \
    }                                                             \
  } while (false)

#define BITSNAP_CONCAT_INNER(a, b) a##b
#define BITSNAP_CONCAT(a, b) BITSNAP_CONCAT_INNER(a, b)

#define BITSNAP_ASSIGN_INNER(result, declaration, ...)  \
  auto result = (__VA_ARGS__);                          \
  if (!result) {                                        \
    return ::tl::unexpected(std::move(result).error()); \
  }                                                     \
  declaration = std::move(result).value()  // NOLINT(bugprone-macro-parentheses)

// Declares a variable with the value of a Result, or returns its error: BITSNAP_ASSIGN(auto file, open(path));
#define BITSNAP_ASSIGN(declaration, ...) \
  BITSNAP_ASSIGN_INNER(BITSNAP_CONCAT(bitsnap_result_, __LINE__), declaration, __VA_ARGS__)

namespace bitsnap::cli {

[[nodiscard]] inline tl::unexpected<Error> fail(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error(kind, std::move(message)));
}

}  // namespace bitsnap::cli
