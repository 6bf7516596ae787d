#include "cli/command_tree.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bitsnap/version.hpp>

namespace bitsnap::cli {

namespace {

// Text that roff shows as it is: `-` stays a minus, so that options can be copied, and no line begins with a control
// character.
std::string roff(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    switch (text[i]) {
      case '\\': out += "\\e"; break;
      case '-': out += "\\-"; break;
      case '\'': out += "\\(aq"; break;
      case '`': out += "\\(ga"; break;
      case '^': out += "\\(ha"; break;
      case '~': out += "\\(ti"; break;
      default: out += text[i];
    }
  }
  return out;
}

// A paragraph in which each line of the text begins a new one.
std::string prose(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    out += fmt::format("{}\n{}\n", out.empty() ? ".PP" : ".br", roff(line));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return out;
}

std::string synopsis(const CommandText& command) {
  std::string out = "\\fBbitsnap";
  if (!command.path.empty()) out += " " + roff(command.path);
  out += "\\fR [\\fIoptions\\fR]";
  for (const OptionText& positional : command.positionals) {
    const std::string name =
        fmt::format("\\fI{}\\fR{}", roff(positional.names.front()), positional.repeated ? "..." : "");
    out += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  if (!command.commands.empty()) out += " \\fICOMMAND\\fR";
  return out + "\n";
}

std::string paragraph(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(fmt::format("\\fB{}\\fR", roff(name)));
  std::string title = fmt::format("{}", fmt::join(names, ", "));
  if (option.names.front().starts_with('-') && !option.value.empty()) {
    title += fmt::format(" \\fI{}\\fR", roff(option.value));
  }
  std::string help = option.help;
  if (!option.choices.empty()) help += fmt::format(": {}", fmt::join(option.choices, ", "));
  if (option.required && option.names.front().starts_with('-')) help += " (required)";
  return fmt::format(".TP\n{}\n{}\n", title, roff(help));
}

// The options that all commands share stand once, in a section of their own.
constexpr std::string_view kCommonGroup = "Common options";

std::string paragraphs(const CommandText& command) {
  std::string out;
  for (const OptionText& positional : command.positionals) out += paragraph(positional);
  for (const OptionText& option : command.options) {
    if (option.group != kCommonGroup && option.names.back() != "--help") out += paragraph(option);
  }
  return out;
}

}  // namespace

std::string manual_page(const CommandText& program) {
  std::string out = fmt::format(
      ".\\\" Made by `bitsnap man`.\n.TH BITSNAP 1 \"\" \"bitsnap {}\" \"User Commands\"\n.SH NAME\nbitsnap \\- stores "
      "training checkpoints losslessly\n.SH SYNOPSIS\n",
      version());
  out += synopsis(program) + ".SH DESCRIPTION\n" + roff(program.help) + "\n.SH OPTIONS\n";
  out += "These options also follow the name of a command.\n";
  for (const OptionText& option : program.options) {
    if (option.group == kCommonGroup || option.names.back() == "--help") out += paragraph(option);
  }
  for (const OptionText& option : program.options) {
    if (option.group != kCommonGroup && option.names.back() != "--help") out += paragraph(option);
  }
  out += ".SH COMMANDS\n";
  for (const CommandText* command : all_commands(program)) {
    if (command->path.empty()) continue;
    out += fmt::format(".SS \"{}\"\n{}\n.PP\n{}", roff("bitsnap " + command->path), roff(command->help),
                       synopsis(*command));
    out += paragraphs(*command) + prose(command->footer);
  }
  const std::size_t exit_status = program.footer.find("Exit status:\n");
  if (exit_status != std::string::npos) {
    out += ".SH EXIT STATUS\n.nf\n" +
           roff(std::string_view(program.footer).substr(program.footer.find('\n', exit_status) + 1)) + "\n.fi\n";
  }
  return out;
}

}  // namespace bitsnap::cli
