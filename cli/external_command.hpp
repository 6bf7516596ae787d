// Commands that are programs of their own, as git has them: `bitsnap NAME` runs `bitsnap-NAME`, which lies beside
// bitsnap or on PATH, with the arguments that follow; its exit status is that of the command. A built-in command goes
// first.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

// One that bitsnap itself comes with, somewhere: named by the help whether or not it is installed.
struct KnownExternal {
  std::string_view name;
  std::string_view description;
  std::string_view how_to_get;
};

inline constexpr std::array<KnownExternal, 1> kKnownExternals = {
    {{"report", "Write a page of plots about a run, for the browser",
      "it comes with the Python package: pip install 'bitsnap[report]'"}}};

[[nodiscard]] const KnownExternal* known_external(std::string_view name) noexcept;

// What the help says of them, with an empty line at its end.
[[nodiscard]] std::string external_help();

// The program's path, or nothing where there is none: beside this program first, then in the absolute folders of PATH.
// Names are letters, digits, - and _.
[[nodiscard]] std::optional<std::string> find_external(std::string_view name);

// Becomes that program, with arguments that end with a null pointer; returns only to say why not. The program finds
// this one's path in BITSNAP_COMMAND.
[[nodiscard]] Error run_external(const std::string& path, const char* const* arguments);

}  // namespace bitsnap::cli
