// What the command line declares, as data, and completion in shells and the manual page, which are made from it, so
// that both say what --help says. Hidden commands and options are left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace bitsnap::cli {

struct OptionText {
  std::vector<std::string> names;  // "-o", "--output"; of a positional one name, such as "RUN"
  std::string value;               // such as "N"; empty if the option takes none
  std::string help;
  std::string group;  // its heading in --help
  bool required = false;
  bool repeated = false;             // takes several values
  std::vector<std::string> choices;  // all values that there are, or empty if any other can be given
};

struct CommandText {
  std::string path;  // "", "add", "agent status"
  std::string help;
  std::string group;
  std::string footer;
  std::vector<OptionText> positionals;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};

// The program, with its external commands. `commands` of others hold theirs, and their options those of both.
[[nodiscard]] CommandText describe_program(const CLI::App& program);

// The program, then each of its commands with those below it.
[[nodiscard]] std::vector<const CommandText*> all_commands(const CommandText& program);

// The last word of the path.
[[nodiscard]] std::string_view command_name(const CommandText& command) noexcept;

// The manual page bitsnap(1), in the macros of man(7), which groff and mandoc render.
[[nodiscard]] std::string manual_page(const CommandText& program);

// Scripts for shells. Each completes commands, options and the values of options that have a list of them, and files
// elsewhere.
[[nodiscard]] std::string bash_completion(const CommandText& program);
[[nodiscard]] std::string zsh_completion(const CommandText& program);
[[nodiscard]] std::string fish_completion(const CommandText& program);

}  // namespace bitsnap::cli
