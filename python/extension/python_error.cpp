// The exception classes are Python's own (bitsnap/errors.py), because most have two bases.
#include "python_error.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

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

void raise(const Error& error) {
  const nb::object exception = to_exception(error);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace bitsnap::python
