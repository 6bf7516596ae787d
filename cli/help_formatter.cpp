// Lines broken between words.
#include "cli/help_formatter.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace bitsnap::cli {

namespace {

constexpr std::size_t kNameColumn = 2;
constexpr std::size_t kTextColumn = 34;
constexpr std::size_t kContinuedNameColumn = 6;

// Appends words to the last line of `to`, which is `column` characters long. Further lines begin with `indent` spaces.
void append_words(std::string& to, std::string_view words, std::size_t column, std::size_t indent) {
  bool is_first = true;
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find(' '));
    if (!is_first && column + 1 + word.size() > kHelpWidth) {
      to += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!is_first) {
      to += ' ';
      ++column;
    }
    to += word;
    column += word.size();
    is_first = false;
    words.remove_prefix(std::min(words.size(), word.size() + 1));
  }
}

// A name, and in the second column what it stands for.
std::string make_row(std::string_view name, std::string_view text) {
  std::string row(kNameColumn, ' ');
  append_words(row, name, kNameColumn, kContinuedNameColumn);
  if (!text.empty()) {
    if (row.size() >= kTextColumn) row += '\n' + std::string(kTextColumn, ' ');
    row.resize(std::max(row.size(), kTextColumn), ' ');
    append_words(row, text, kTextColumn, kTextColumn);
  }
  return row + '\n';
}

std::string make_prose(std::string_view text) {
  std::string prose;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(' ')) {
      prose += line;
    } else {
      append_words(prose, line, 0, 0);
    }
    prose += '\n';
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return prose;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  std::string help = make_prose(app->get_description()) + make_usage(app, std::move(name)) + make_positionals(app) +
                     make_groups(app, mode) + make_subcommands(app, mode);
  if (const std::string footer = app->get_footer(); !footer.empty()) help += '\n' + make_prose(footer);
  for (std::size_t at = 0; (at = help.find("\n\n\n", at)) != std::string::npos;) help.erase(at, 1);
  while (help.ends_with("\n\n")) help.pop_back();
  return help;
}

std::string HelpFormatter::make_subcommands(const CLI::App* app, CLI::AppFormatMode) const {
  std::vector<std::pair<std::string, std::string>> groups;
  for (const CLI::App* command : app->get_subcommands({})) {
    const std::string& group = command->get_group();
    if (group.empty()) continue;
    auto found = std::ranges::find(groups, group, &std::pair<std::string, std::string>::first);
    if (found == groups.end()) found = groups.insert(groups.end(), {group, {}});
    found->second += make_row(command->get_name(), command->get_description());
  }
  std::string lists;
  for (const auto& [group, rows] : groups) {
    // "Runs: the checkpoints of ..." needs no second colon.
    lists += '\n' + group + (group.find(": ") == std::string::npos ? ":\n" : "\n") + rows;
  }
  return lists;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  return make_row(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option));
}

}  // namespace bitsnap::cli
