// Conversion in both directions, recursively. bitsnap/_states/tree.py and the parser bound the depth.
#include "python_value.hpp"

#include <complex>
#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "python_error.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Python refuses to convert more digits than about this between text and integers at once.
constexpr std::size_t kDigitsAtOnce = 4000;

nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

nb::object integer(std::string_view digits) {
  const std::string text(digits);
  return checked(PyLong_FromString(text.c_str(), nullptr, 10));
}

nb::object power_of_ten(std::size_t exponent) {
  return checked(
      PyNumber_Power(checked(PyLong_FromLong(10)).ptr(), checked(PyLong_FromSize_t(exponent)).ptr(), Py_None));
}

// The decimal digits of an integer of any size; splits at a power of ten near the middle.
std::string decimal_digits(nb::handle positive, std::size_t digits_at_most) {
  if (digits_at_most <= kDigitsAtOnce) return nb::cast<std::string>(checked(PyObject_Str(positive.ptr())));
  const std::size_t low_digits = digits_at_most / 2;
  const nb::object parts = checked(PyNumber_Divmod(positive.ptr(), power_of_ten(low_digits).ptr()));
  const std::string high = decimal_digits(parts[0], digits_at_most - low_digits);
  std::string low = decimal_digits(parts[1], low_digits);
  if (high == "0") return low;
  low.insert(0, low_digits - low.size(), '0');
  return high + low;
}

nb::object integer_of(std::string_view digits) {
  if (digits.size() <= kDigitsAtOnce) return integer(digits);
  const std::size_t low_digits = digits.size() / 2;
  const nb::object high = integer_of(digits.substr(0, digits.size() - low_digits));
  const nb::object low = integer_of(digits.substr(digits.size() - low_digits));
  const nb::object shifted = checked(PyNumber_Multiply(high.ptr(), power_of_ten(low_digits).ptr()));
  return checked(PyNumber_Add(shifted.ptr(), low.ptr()));
}

Value integer_from_python(nb::handle object) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) {
    if (small == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return Value(static_cast<std::int64_t>(small));
  }
  const nb::object magnitude = checked(PyNumber_Absolute(object.ptr()));
  const auto bits = nb::cast<std::size_t>(magnitude.attr("bit_length")());
  const std::string digits = decimal_digits(magnitude, bits * 30103 / 100000 + 1);
  return Value(ValueBigInt{overflow < 0 ? "-" + digits : digits});
}

std::string_view utf8(nb::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<std::size_t>(size)};
}

ValueList list_from_python(nb::handle sequence) {
  ValueList items;
  items.reserve(nb::len(sequence));
  for (const nb::handle item : sequence) items.push_back(value_from_python(item));
  return items;
}

// Of the error of hashing it, which is a TypeError for values such as sets.
[[noreturn]] void raise_unhashable(const nb::object& key) {
  nb::python_error error;
  if (!error.matches(PyExc_TypeError)) throw error;
  raise(Error(ErrorKind::unsupported,
              "the tree holds a dict with a key that is none in Python: " + nb::cast<std::string>(nb::repr(key))));
}

struct ToPython {
  nb::handle decode;

  nb::object operator()(std::monostate) const { return nb::none(); }
  nb::object operator()(bool value) const { return nb::bool_(value); }
  nb::object operator()(std::int64_t value) const { return checked(PyLong_FromLongLong(value)); }
  nb::object operator()(double value) const { return checked(PyFloat_FromDouble(value)); }
  nb::object operator()(const std::complex<double>& value) const {
    return checked(PyComplex_FromDoubles(value.real(), value.imag()));
  }
  nb::object operator()(const ValueBigInt& value) const {
    const std::string_view decimal = value.decimal;
    if (!decimal.starts_with('-')) return integer_of(decimal);
    return checked(PyNumber_Negative(integer_of(decimal.substr(1)).ptr()));
  }
  nb::object operator()(const std::string& value) const {
    return checked(PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "strict"));
  }
  nb::object operator()(const ValueBytes& value) const {
    return checked(PyBytes_FromStringAndSize(value.bytes.data(), static_cast<Py_ssize_t>(value.bytes.size())));
  }
  nb::object operator()(const ValueList& value) const {
    nb::list result;
    for (const Value& item : value) result.append(convert(item));
    return result;
  }
  nb::object operator()(const ValueTuple& value) const {
    const nb::object result = checked(PyTuple_New(static_cast<Py_ssize_t>(value.items.size())));
    for (std::size_t i = 0; i < value.items.size(); ++i) {
      PyTuple_SetItem(result.ptr(), static_cast<Py_ssize_t>(i), convert(value.items[i]).release().ptr());
    }
    return result;
  }
  nb::object operator()(const ValueDict& value) const {
    nb::dict result;
    for (const auto& [key, item] : value.entries) {
      const nb::object python_key = convert(key);
      const int present = PyDict_Contains(result.ptr(), python_key.ptr());
      if (present < 0) raise_unhashable(python_key);
      if (present == 1) {
        raise(Error(ErrorKind::unsupported, "the tree holds a dict with two keys that are the same in Python: " +
                                                nb::cast<std::string>(nb::repr(python_key))));
      }
      if (PyDict_SetItem(result.ptr(), python_key.ptr(), convert(item).ptr()) != 0) throw nb::python_error();
    }
    return result;
  }
  nb::object operator()(const ValueTensor& value) const { return nb::cast(TensorRef{value.index, value.kind}); }
  nb::object operator()(const ValueTyped& value) const { return decode(value.type, convert(value.content.front())); }

 private:
  [[nodiscard]] nb::object convert(const Value& value) const { return std::visit(*this, value.get()); }
};

std::string_view kind_name(ValueTensor::Kind kind) {
  switch (kind) {
    case ValueTensor::Kind::tensor: return "tensor";
    case ValueTensor::Kind::array: return "array";
    case ValueTensor::Kind::scalar: return "scalar";
  }
  return "tensor";
}

ValueTensor::Kind kind_from_name(std::string_view name) {
  for (const auto kind : {ValueTensor::Kind::tensor, ValueTensor::Kind::array, ValueTensor::Kind::scalar}) {
    if (name == kind_name(kind)) return kind;
  }
  throw nb::value_error("the kind of a TensorRef is 'tensor', 'array' or 'scalar'");
}

}  // namespace

Value value_from_python(nb::handle object) {
  PyObject* const pointer = object.ptr();
  if (object.is_none()) return Value();
  if (PyBool_Check(pointer)) return Value(Value::Variant(pointer == Py_True));
  if (PyLong_CheckExact(pointer)) return integer_from_python(object);
  if (PyFloat_CheckExact(pointer)) return Value(PyFloat_AsDouble(pointer));
  if (PyComplex_CheckExact(pointer)) {
    return Value(std::complex<double>(PyComplex_RealAsDouble(pointer), PyComplex_ImagAsDouble(pointer)));
  }
  if (PyUnicode_CheckExact(pointer)) return Value(std::string(utf8(object)));
  if (PyBytes_CheckExact(pointer)) {
    return Value(ValueBytes{std::string(PyBytes_AsString(pointer), static_cast<std::size_t>(PyBytes_Size(pointer)))});
  }
  if (PyList_CheckExact(pointer)) return Value(list_from_python(object));
  if (PyTuple_CheckExact(pointer)) return Value(ValueTuple{list_from_python(object)});
  if (PyDict_CheckExact(pointer)) {
    ValueDict dict;
    for (const auto& [key, value] : nb::borrow<nb::dict>(object)) {
      dict.entries.emplace_back(value_from_python(key), value_from_python(value));
    }
    return Value(std::move(dict));
  }
  if (nb::isinstance<TensorRef>(object)) {
    const auto& reference = nb::cast<const TensorRef&>(object);
    return Value(ValueTensor{reference.index, reference.kind});
  }
  if (nb::isinstance<TypedValue>(object)) {
    const auto& typed = nb::cast<const TypedValue&>(object);
    return Value(ValueTyped{typed.type, {value_from_python(typed.content)}});
  }
  throw nb::type_error(("not a value of the typed tree: " + nb::cast<std::string>(nb::repr(object.type()))).c_str());
}

nb::object value_to_python(const Value& value, nb::handle decode) { return std::visit(ToPython{decode}, value.get()); }

void bind_values(nb::module_& module) {
  nb::class_<TensorRef>(module, "TensorRef")
      .def(
          "__init__",
          [](TensorRef* self, std::size_t index, std::string_view kind) {
            new (self) TensorRef{index, kind_from_name(kind)};
          },
          nb::arg("index"), nb::arg("kind"))
      .def_ro("index", &TensorRef::index)
      .def_prop_ro("kind", [](const TensorRef& self) { return kind_name(self.kind); });

  nb::class_<TypedValue>(module, "TypedValue",
                         "A value of a type that the tree itself does not have: its name, and what it is made of.")
      .def(nb::init<std::string, nb::object>(), nb::arg("type"), nb::arg("content").none())
      .def_ro("type", &TypedValue::type)
      .def_prop_ro("content", [](const TypedValue& self) { return nb::borrow<nb::any>(self.content); });

  module.def(
      "value_text", [](nb::handle value) { return value_or_raise(serialize_value(value_from_python(value))); },
      nb::arg("value").none(), "The JSON of a value of the typed tree.");
}

}  // namespace bitsnap::python
