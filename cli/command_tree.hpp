// What the command line declares, as data: for completion in shells and for the manual page, so that both say what
// --help says. Hidden commands and options are left out.
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

}  // namespace bitsnap::cli
