// The exception classes are Python's own (bitsnap/errors.py), because most have two bases.
#include "python_error.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

const char* class_name(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument: return "InvalidArgumentError";
    case ErrorKind::not_found: return "NotFoundError";
    case ErrorKind::unsupported: return "UnsupportedError";
    case ErrorKind::truncated: return "TruncatedError";
    case ErrorKind::corrupt: return "CorruptError";
    case ErrorKind::io: return "IoError";
    case ErrorKind::resource_exhausted: return "ResourceExhaustedError";
    case ErrorKind::busy: return "BusyError";
    case ErrorKind::cancelled: return "CancelledError";
    case ErrorKind::internal: return "InternalError";
  }
  return "InternalError";
}

}  // namespace

nb::object exception_class(ErrorKind kind) { return nb::module_::import_("bitsnap.errors").attr(class_name(kind)); }

nb::object text_of_message(std::string_view message) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

void raise(const Error& error) {
  const nb::object exception = exception_class(error.kind())(text_of_message(error.message()));
  const std::string_view code = error_code_name(error);
  exception.attr("code") = nb::str(code.data(), code.size());
  if (!error.field().empty()) exception.attr("field") = text_of_message(error.field());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

}  // namespace bitsnap::python
