// bitsnap._bitsnap: bindings of the library's public headers. python/bitsnap/ has the interface for users.
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <bitsnap/cpu.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/tensor.hpp>
#include <bitsnap/version.hpp>

#include "bindings.hpp"
#include "python_error.hpp"
#include "python_source.hpp"
#include "python_value.hpp"
#include "run_context.hpp"

namespace nb = nanobind;

NB_MODULE(_bitsnap, module) {
  using namespace bitsnap;

  // What is alive at the end, because a thread or another module holds it, is no leak that a user can mend.
  nb::set_leak_warnings(false);
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
  module.def("max_cost", &max_cost);
  module.def(
      "set_max_cost",
      [](double factor) {
        if (!set_max_cost(factor)) {
          python::raise(
              Error(ErrorKind::invalid_argument, fmt::format("max_cost must be finite and above 0, got {}", factor)));
        }
      },
      nb::arg("factor"),
      "Multiplies the limits on what reading a file may cost, for all that this process opens from now on. Above 1 for "
      "files that are trusted; below 1 for a process that only reads, and must spend less. The environment variable "
      "BITSNAP_MAX_COST sets the initial factor; without it, it is 1.");
  module.def("note_fork", &python::note_fork);
  module.def("warn_of_leaks", &nb::set_leak_warnings, nb::arg("warn"));

  python::bind_values(module);
  python::bind_sources(module);
  python::bind_settings(module);
  python::bind_loss(module);
  python::bind_reading(module);
  python::bind_whole_state(module);
  python::bind_objects(module);
  python::bind_options(module);
  python::bind_writing(module);
  python::bind_folder(module);
  python::bind_patch(module);
  python::bind_store(module);
  python::bind_engine(module);
}
