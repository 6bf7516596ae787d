// The only code of the command that calls the operating system: the terminal, the standard streams, signals, and
// external commands.
#pragma once

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

[[nodiscard]] bool is_terminal(std::FILE* stream) noexcept;

// Width of the terminal behind the stream, in columns; nullopt if it is no terminal or its width is unknown.
[[nodiscard]] std::optional<std::size_t> terminal_width(std::FILE* stream) noexcept;

// Opens closed standard streams on /dev/null, so that no file that the command opens gets their numbers and receives
// messages.
void open_standard_streams() noexcept;

// After this call, the first SIGINT, SIGTERM or SIGHUP only asks the command to stop, so that it can remove its
// temporary files; the second one ends it at once. An ignored signal stays ignored (nohup).
void catch_interrupts() noexcept;

// The signal that asked the command to stop, or 0. Any thread may ask.
[[nodiscard]] int interrupt_signal() noexcept;

// ---- external commands, as in git: `bitsnap NAME ...` runs the program `bitsnap-NAME ...`, which is in the folder of
// bitsnap or in PATH, and ends with its exit status. Built-in commands take precedence.

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
