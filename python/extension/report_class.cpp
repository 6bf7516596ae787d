#include "report_class.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

// Characters that the repr of a value may have; lists show their first six items.
constexpr int kShownCharacters = 120;

}  // namespace

std::string short_repr(nb::handle self) {
  const nb::object shorten = nb::module_::import_("reprlib").attr("Repr")();
  for (const char* limit : {"maxstring", "maxother"}) shorten.attr(limit) = kShownCharacters;
  std::string fields;
  for (const nb::handle name : self.type().attr("_fields")) {
    const nb::object value = self.attr(nb::borrow<nb::str>(name));
    if (value.is_none()) continue;
    if (!fields.empty()) fields += ", ";
    fields += nb::cast<std::string>(name) + "=" + nb::cast<std::string>(shorten.attr("repr")(value));
  }
  return nb::cast<std::string>(self.type().attr("__name__")) + "(" + fields + ")";
}

std::string html_repr(nb::handle self) {
  const nb::object escape = nb::module_::import_("html").attr("escape");
  std::string rows;
  for (const nb::handle name : self.type().attr("_fields")) {
    const nb::object value = self.attr(nb::borrow<nb::str>(name));
    if (value.is_none()) continue;
    rows += "<tr><th>" + nb::cast<std::string>(name) + "</th><td>" + nb::cast<std::string>(escape(nb::str(value))) +
            "</td></tr>";
  }
  return "<table>" + rows + "</table>";
}

nb::object has_equal_fields(nb::handle self, nb::handle other) {
  if (!self.type().is(other.type())) return nb::borrow(Py_NotImplemented);
  for (const nb::handle name : self.type().attr("_fields")) {
    const nb::str field = nb::borrow<nb::str>(name);
    if (!self.attr(field).equal(other.attr(field))) return nb::bool_(false);
  }
  return nb::bool_(true);
}

}  // namespace bitsnap::python
