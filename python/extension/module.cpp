// bitsnap._bitsnap: bindings of the library's public headers. python/bitsnap/ has the interface for users.
#include <optional>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <bitsnap/cpu.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/version.hpp>

#include "bindings.hpp"
#include "python_value.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

NB_MODULE(_bitsnap, module) {
  using namespace bitsnap;

  module.doc() = "Bindings of libbitsnap; use the package bitsnap.";
  module.attr("FORMAT_VERSION") = kFormatVersion;
  module.def("version", &version);
  module.def("cpu_level", [] { return cpu_level_name(cpu_level()); });
  module.def("detected_cpu_level", [] { return cpu_level_name(detected_cpu_level()); });
  module.def(
      "force_cpu_level",
      [](std::string_view name) {
        const std::optional<CpuLevel> level = cpu_level_from_name(name);
        return level.has_value() && force_cpu_level(*level);
      },
      nb::arg("level"));
  module.def(
      "guess_role",
      [](std::string_view name, std::string_view dtype) { return role_name(guess_role(name, dtype_from_name(dtype))); },
      nb::arg("name"), nb::arg("dtype"));
  module.def("note_fork", &python::note_fork);
  module.def("warn_of_leaks", &nb::set_leak_warnings, nb::arg("warn"));

  python::bind_values(module);
  python::bind_settings(module);
  python::bind_loss(module);
  python::bind_reading(module);
  python::bind_writing(module);
  python::bind_store(module);
  python::bind_engine(module);
}
