// The exception classes are Python's own (bitsnap/errors.py), because most have two bases.
#include "python_error.hpp"

#include <array>
#include <string>

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

constexpr std::array kAllKinds = {
    ErrorKind::invalid_argument, ErrorKind::not_found, ErrorKind::unsupported,        ErrorKind::truncated,
    ErrorKind::corrupt,          ErrorKind::io,        ErrorKind::resource_exhausted, ErrorKind::busy,
    ErrorKind::cancelled,        ErrorKind::internal};

}  // namespace

nb::str text_of_message(std::string_view message) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (!text.is_valid()) throw nb::python_error();
  return nb::borrow<nb::str>(text);
}

nb::object to_exception(const Error& error) {
  const std::string_view kind = error_kind_name(error.kind());
  const nb::object kinds = nb::module_::import_("bitsnap.errors").attr("KINDS");
  nb::object exception = kinds[nb::str(kind.data(), kind.size())](text_of_message(error.message()));
  const std::string_view code = error_code_name(error);
  exception.attr("code") = nb::str(code.data(), code.size());
  if (!error.field().empty()) exception.attr("field") = text_of_message(error.field());
  return exception;
}

Error to_error(const nb::python_error& raised) {
  const nb::dict kinds = nb::module_::import_("bitsnap.errors").attr("KINDS");
  ErrorKind kind = ErrorKind::io;
  for (const ErrorKind each : kAllKinds) {
    const std::string_view name = error_kind_name(each);
    if (raised.type().is(kinds[nb::str(name.data(), name.size())])) kind = each;
  }
  return Error(kind, nb::cast<std::string>(nb::str(raised.value())));
}

void raise(const Error& error) {
  const nb::object exception = to_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace bitsnap::python
