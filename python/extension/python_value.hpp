// The typed tree between Python and the library. Needs the GIL.
//
// Accepts exact types only (str, not its subclasses). bitsnap/_states/tree.py converts subclasses, and names the place
// of values that cannot be stored.
#pragma once

#include <cstddef>
#include <string>

#include <nanobind/nanobind.h>

#include <bitsnap/value.hpp>

namespace bitsnap::python {

// The place of a tensor in a tree of Python objects.
struct TensorRef {
  std::size_t index = 0;
  ValueTensor::Kind kind = ValueTensor::Kind::tensor;
};

// A value of a type of bitsnap/_states/typed_values.py: the name of the type, and the value that it is made of.
struct TypedValue {
  std::string type;
  nanobind::object content;
};

// Throws nanobind::type_error for a type that the tree does not know.
[[nodiscard]] Value value_from_python(nanobind::handle object);

// Calls `decode`, with the name and the content, for each typed value. Raises UnsupportedError for a dict with keys
// that are equal in Python (1 and true), and what `decode` raises.
[[nodiscard]] nanobind::object value_to_python(const Value& value, nanobind::handle decode);

void bind_values(nanobind::module_& module);

}  // namespace bitsnap::python
