#include "cli/command_tree.hpp"

#include <utility>

#include <fmt/format.h>

#include "cli/operating_system.hpp"

namespace bitsnap::cli {

namespace {

// The values of a check such as CLI::IsMember, whose description is "{a,b}"; `type` ends with it.
std::vector<std::string> take_choices(std::string& type) {
  const std::size_t begin = type.find('{');
  if (begin == std::string::npos || !type.ends_with('}')) return {};
  std::vector<std::string> choices = CLI::detail::split(type.substr(begin + 1, type.size() - begin - 2), ',');
  type.erase(begin);
  if (type.ends_with(':')) type.pop_back();
  return choices;
}

OptionText describe_option(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (text.names.empty()) text.names.push_back(option.get_name(true));
  if (option.get_items_expected_max() > 0) {
    text.value = option.get_type_name();
    text.choices = take_choices(text.value);
    if (text.value.empty()) text.value = "VALUE";
  }
  text.help = option.get_description();
  if (!option.get_default_str().empty()) text.help += fmt::format(" [{}]", option.get_default_str());
  text.group = option.get_group();
  text.required = option.get_required();
  text.repeated = option.get_items_expected_max() > 1;
  return text;
}

CommandText describe(const CLI::App& app, const std::string& path) {
  CommandText text{.path = path,
                   .help = app.get_description(),
                   .group = app.get_group(),
                   .footer = app.get_footer(),
                   .positionals = {},
                   .options = {},
                   .commands = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? text.positionals : text.options).push_back(describe_option(*option));
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    text.commands.push_back(describe(*command, path.empty() ? command->get_name() : path + " " + command->get_name()));
    if (command->get_fallthrough()) {
      std::vector<OptionText>& options = text.commands.back().options;
      for (const OptionText& option : text.options) {
        if (option.names.back() != "--help") options.push_back(option);
      }
    }
  }
  return text;
}

void append(std::vector<const CommandText*>& all, const CommandText& command) {
  all.push_back(&command);
  for (const CommandText& below : command.commands) append(all, below);
}

}  // namespace

CommandText describe_program(const CLI::App& program) {
  CommandText text = describe(program, "");
  CommandText report;
  report.path = kReport.name;
  report.help = kReport.description;
  report.group = "Programs beside this one";
  text.commands.push_back(std::move(report));
  std::vector<std::string> names;
  for (const CommandText& command : text.commands) names.push_back(command.path);
  for (CommandText& command : text.commands) {
    if (command.path == "help") command.positionals.front().choices = names;
  }
  return text;
}

std::vector<const CommandText*> all_commands(const CommandText& program) {
  std::vector<const CommandText*> all;
  append(all, program);
  return all;
}

std::string_view command_name(const CommandText& command) noexcept {
  const std::string_view path = command.path;
  return path.substr(path.rfind(' ') + 1);  // npos + 1 is 0
}

}  // namespace bitsnap::cli
