// Results as Python exceptions: one class of bitsnap.errors for each ErrorKind. All functions need the GIL.
#pragma once

#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>

#include <bitsnap/error.hpp>

namespace bitsnap::python {

// A message as str. Names from files in it need not be UTF-8; their other bytes are escaped.
[[nodiscard]] nanobind::str text_of_message(std::string_view message);

// The exception, with its code and field.
[[nodiscard]] nanobind::object to_exception(const Error& error);

// What a callback of the library raised: the kind of its class in bitsnap.errors, and io for any other.
[[nodiscard]] Error to_error(const nanobind::python_error& raised);

// Raises the exception of the error.
[[noreturn]] void raise(const Error& error);

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace bitsnap::python
