// bitsnap.Settings: CodingSettings as an immutable class. Its arguments, attributes, repr and signature come from the
// library's table of settings, so that a new setting needs no change here. Also what rules and Adam's values need.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bitsnap/settings.hpp>
#include <bitsnap/tensor.hpp>

#include "bindings.hpp"
#include "python_error.hpp"

namespace nb = nanobind;

namespace bitsnap::python {

namespace {

std::string choices(const SettingField& field) {
  return fmt::format("typing.Literal['{}']", fmt::join(field.names, "', '"));
}

// As an argument and as an attribute.
std::string argument_type(const SettingField& field) {
  if (field.kind == SettingKind::number) return "typing.SupportsIndex";
  if (field.kind == SettingKind::rules) return "collections.abc.Iterable[str]";
  return field.names.empty() ? "str" : choices(field);
}

std::string attribute_type(const SettingField& field) {
  if (field.kind == SettingKind::number) return "int";
  if (field.kind == SettingKind::rules) return "list[str]";
  return field.names.empty() ? "str" : choices(field);
}

std::string signature(std::string_view method, std::string_view result) {
  std::string text = fmt::format("def {}(self, *", method);
  for (const SettingField& field : setting_fields()) {
    fmt::format_to(std::back_inserter(text), ", {}: {} | None = None", field.name, argument_type(field));
  }
  return text + fmt::format(") -> {}", result);
}

std::string documentation() {
  std::string text = R"(How a state is coded.

Immutable. A setting that is not given is None and has its default, or for the checkpoints of a store the value that the
store remembers. bounded() makes settings for bounded loss.

Args:
)";
  for (const SettingField& field : setting_fields()) {
    fmt::format_to(std::back_inserter(text), "    {}: {}.\n", field.name, field.help);
  }
  return text + R"(
Raises:
    InvalidArgumentError: a value is out of range. `field` of the error names the setting.
    TypeError: a value has the wrong type, or there is no such setting.)";
}

[[noreturn]] void refuse_type(const SettingField& field, const char* expected, nb::handle found) {
  throw nb::type_error(
      fmt::format("{} must be {}, got {}", field.name, expected, nb::cast<std::string>(nb::repr(found))).c_str());
}

std::string text_of(const SettingField& field, nb::handle given, const char* expected) {
  if (!nb::isinstance<nb::str>(given)) refuse_type(field, expected, given);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(given.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(size)};
}

std::uint64_t number_of(const SettingField& field, nb::handle given) {
  const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
  if (!number.is_valid()) {
    PyErr_Clear();
    refuse_type(field, "an integer", given);
  }
  const unsigned long long value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    const std::string message = fmt::format("{} must be at least 0 and below 2**64", field.name);
    raise(Error(ErrorKind::invalid_argument, message).about(field.name));
  }
  return value;
}

std::vector<std::string> rules_of(const SettingField& field, nb::handle given) {
  if (nb::isinstance<nb::str>(given) || !nb::isinstance<nb::iterable>(given)) {
    refuse_type(field, "a list of str", given);
  }
  std::vector<std::string> rules;
  for (const nb::handle rule : given) rules.push_back(text_of(field, rule, "a list of str"));
  return rules;
}

SettingValue value_of(const SettingField& field, nb::handle given) {
  if (field.kind == SettingKind::number) return number_of(field, given);
  if (field.kind == SettingKind::rules) return rules_of(field, given);
  return text_of(field, given, "a str");
}

CodingSettings settings_from(nb::handle given) {
  CodingSettings made;
  for (const auto& [key, value] : nb::borrow<nb::dict>(given)) {
    const SettingField* const field = find_setting(nb::cast<std::string>(key));
    if (field == nullptr) {
      std::vector<std::string_view> known;
      for (const SettingField& each : setting_fields()) known.push_back(each.name);
      throw nb::type_error(fmt::format("there is no setting {}, expected {}", nb::cast<std::string>(nb::repr(key)),
                                       fmt::join(known, ", "))
                               .c_str());
    }
    if (!value.is_none()) value_or_raise(field->set(*field, made, value_of(*field, value)));
  }
  return made;
}

nb::object attribute(const SettingField& field, const CodingSettings& settings) {
  const std::optional<SettingValue> value = field.get(settings);
  return value ? std::visit([](const auto& held) { return nb::cast(held); }, *value) : nb::none();
}

// The settings that have a value, by name.
nb::dict given_settings(const CodingSettings& settings) {
  nb::dict given;
  for (const SettingField& field : setting_fields()) {
    nb::object value = attribute(field, settings);
    if (!value.is_none()) given[nb::str(field.name.data(), field.name.size())] = std::move(value);
  }
  return given;
}

std::string repr(const CodingSettings& settings) {
  std::vector<std::string> shown;
  for (const auto& [name, value] : given_settings(settings)) {
    shown.push_back(nb::cast<std::string>(name) + "=" + nb::cast<std::string>(nb::repr(value)));
  }
  return fmt::format("Settings({})", fmt::join(shown, ", "));
}

nb::object reduce(nb::handle self) {
  const nb::object partial = nb::module_::import_("functools").attr("partial");
  const nb::dict given = given_settings(nb::cast<const CodingSettings&>(self));
  return nb::make_tuple(partial(self.type(), **nb::borrow<nb::kwargs>(given)), nb::make_tuple());
}

// The rules of `settings` that match no tensor: a name, a dtype, and a role unless it is to be guessed. The policy
// `bounded` has rules for whole roles, which a state need not have.
std::vector<std::string> idle_rules(
    const CodingSettings& settings,
    const std::vector<std::tuple<std::string, std::string, std::optional<std::string>>>& tensors) {
  std::vector<std::string> idle;
  for (const LossRule& rule : settings.loss.value_or(std::vector<LossRule>())) {
    if (settings.policy == Policy::bounded && rule.name == "*") continue;
    const auto matches = [&](const auto& tensor) {
      const auto& [name, dtype, given] = tensor;
      const auto role = given ? role_from_name(*given) : guess_role(name, dtype_from_name(dtype));
      return role && fits(rule, *role, name);
    };
    if (std::ranges::none_of(tensors, matches)) idle.push_back(format_loss_rule(rule));
  }
  return idle;
}

}  // namespace

void bind_settings(nb::module_& module) {
  auto settings = nb::class_<CodingSettings>(module, "Settings", documentation().c_str());
  const std::string init = signature("__init__", "None");
  settings.def(
      "__init__",
      [](CodingSettings* self, const nb::args& unnamed, const nb::kwargs& given) {
        if (unnamed.size() > 0) {
          throw nb::type_error("Settings() takes named arguments only, such as Settings(policy=\"bounded\")");
        }
        new (self) CodingSettings(settings_from(given));
      },
      nb::sig(init.c_str()));
  const std::string replace = signature("replace", "Settings");
  settings.def(
      "replace",
      [](const CodingSettings& self, const nb::kwargs& given) {
        nb::dict all = given_settings(self);
        all.update(nb::borrow<nb::dict>(given));
        return settings_from(all);
      },
      nb::sig(replace.c_str()), "A copy with the given settings replaced; None takes a setting away.");
  for (const SettingField& field : setting_fields()) {
    const std::string getter = fmt::format("def {}(self, /) -> {} | None", field.name, attribute_type(field));
    settings.def_prop_ro(
        std::string(field.name).c_str(), [&field](const CodingSettings& self) { return attribute(field, self); },
        nb::for_getter(nb::sig(getter.c_str())));
  }
  settings.def("__repr__", &repr)
      .def(
          "__eq__", [](const CodingSettings& self, const CodingSettings& other) { return self == other; },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const CodingSettings& self) { return nb::hash(nb::cast(repr(self))); })
      .def("__reduce__", &reduce, nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));

  module.def("idle_rules", &idle_rules, nb::arg("settings"), nb::arg("tensors"));
}

}  // namespace bitsnap::python
