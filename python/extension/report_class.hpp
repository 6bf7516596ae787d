// Structs of the library as classes of Python: attributes to read, and a short repr and equality made from them.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python_error.hpp"

// An Error that a struct holds is an exception in Python.
template <>
struct nanobind::detail::type_caster<bitsnap::Error> {
  template <typename T>
  using Cast = movable_cast_t<T>;
  static constexpr auto Name = const_name("BitsnapError");  // stub_patterns.txt imports it

  static handle from_cpp(const bitsnap::Error& error, rv_policy /*policy*/, cleanup_list* /*cleanup*/) noexcept {
    try {
      return bitsnap::python::to_exception(error).release();
    } catch (python_error& raised) {
      raised.restore();
      return {};
    }
  }
};

namespace bitsnap::python {

// Name(field=value, ...) without fields that are None; lists and texts are cut.
[[nodiscard]] std::string short_repr(nanobind::handle self);
// The same fields as a table, for notebooks.
[[nodiscard]] std::string html_repr(nanobind::handle self);
[[nodiscard]] nanobind::object has_equal_fields(nanobind::handle self, nanobind::handle other);

// 1 if nothing is stored.
[[nodiscard]] inline double ratio_of_bytes(std::uint64_t raw_bytes, std::uint64_t stored_bytes) {
  return stored_bytes == 0 ? 1.0 : static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes);
}
template <typename T>
double ratio_of(const T& sizes) {
  return ratio_of_bytes(sizes.raw_bytes, sizes.stored_bytes);
}

template <typename T>
class ReportClass {
 public:
  ReportClass(nanobind::handle scope, const char* name, const char* doc) : class_(scope, name, doc) {
    class_.def("__repr__", &short_repr)
        .def("_repr_html_", &html_repr)
        .def("__hash__", [](nanobind::handle self) { return nanobind::hash(nanobind::cast(short_repr(self))); })
        .def("__eq__", &has_equal_fields, nanobind::sig("def __eq__(self, other: object, /) -> bool"));
  }

  template <typename Member, typename... Extra>
    requires std::is_object_v<Member>
  ReportClass& field(const char* name, Member T::* member, const Extra&... extra) {
    add(name);
    class_.def_ro(name, member, extra...);
    return *this;
  }
  // get(const T&) makes the value.
  template <typename Get, typename... Extra>
  ReportClass& field(const char* name, Get get, const Extra&... extra) {
    add(name);
    return computed(name, std::move(get), extra...);
  }
  // An attribute that follows from the fields.
  template <typename Get, typename... Extra>
  ReportClass& computed(const char* name, Get get, const Extra&... extra) {
    class_.def_prop_ro(name, std::move(get), extra...);
    return *this;
  }
  [[nodiscard]] nanobind::class_<T>& native() { return class_; }

 private:
  void add(const char* name) {
    names_.append(name);
    class_.attr("_fields") = nanobind::tuple(names_);
  }

  nanobind::class_<T> class_;
  nanobind::list names_;
};

}  // namespace bitsnap::python
