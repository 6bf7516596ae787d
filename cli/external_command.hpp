// External commands, as in git: `bitsnap NAME ...` runs the program `bitsnap-NAME ...`, which is in the folder of
// bitsnap or in PATH, and ends with its exit status. Built-in commands take precedence.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// An external command that the project provides; --help lists it even if it is not installed.
struct KnownExternal {
  std::string_view name;
  std::string_view description;
  std::string_view how_to_get;
};

inline constexpr KnownExternal kReport = {"report", "Write a page of plots about a run, for the browser",
                                          "it comes with the Python package: pip install 'bitsnap[report]'"};

// The section of --help about them, with an empty line at its end.
[[nodiscard]] std::string external_help();

// Path of the program, or nullopt: searched in the folder of this program, then in the absolute folders of PATH. Names
// consist of letters, digits, - and _.
[[nodiscard]] std::optional<std::string> find_external(std::string_view name);

// Replaces this process by the program; `arguments` end with a null pointer. Returns only if that fails. The program
// gets the path of this one in the variable BITSNAP_COMMAND.
[[nodiscard]] Error run_external(const std::string& path, const char* const* arguments);

}  // namespace bitsnap::cli
