// From a Result to a Python exception: one class of bitsnap.errors for each ErrorKind. All of this needs the GIL.
#pragma once

#include <string_view>
#include <utility>

#include <nanobind/nanobind.h>

#include <bitsnap/error.hpp>

namespace bitsnap::python {

// The class of bitsnap.errors for a kind.
[[nodiscard]] nanobind::object exception_class(ErrorKind kind);

// A message as str. Messages quote names from files: what is not UTF-8 there must not hide the error.
[[nodiscard]] nanobind::object text_of_message(std::string_view message);

// Sets the Python exception that stands for the error and throws nanobind's carrier of it.
[[noreturn]] void raise(const Error& error);

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace bitsnap::python
