// The text of --help: options and commands in two columns, and prose. Lines have at most kHelpWidth characters, and one
// blank line stands between two parts. CLI11 alone leaves long lines to the terminal, which breaks them within words.
#pragma once

#include <cstddef>
#include <string>

#include <CLI/CLI.hpp>

namespace bitsnap::cli {

inline constexpr std::size_t kHelpWidth = 100;

class HelpFormatter : public CLI::Formatter {
 public:
  // Lines of a footer that begin with a space are parts of tables and stay as they are.
  [[nodiscard]] std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  // The commands under the headings of their groups, in the order of their registration.
  [[nodiscard]] std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override;
  [[nodiscard]] std::string make_option(const CLI::Option* option, bool is_positional) const override;
};

}  // namespace bitsnap::cli
