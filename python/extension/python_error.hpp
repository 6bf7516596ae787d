// From a Result to a Python exception: one class of bitsnap.errors for each ErrorKind. All of this needs the GIL.
#pragma once

#include <utility>

#include <nanobind/nanobind.h>

#include <bitsnap/error.hpp>

namespace bitsnap::python {

// The class of bitsnap.errors for a kind.
[[nodiscard]] nanobind::object exception_class(ErrorKind kind);

// Sets the Python exception that stands for the error and throws nanobind's carrier of it.
[[noreturn]] void raise(const Error& error);

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace bitsnap::python
