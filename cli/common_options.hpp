// The options that every sub-command takes, and what a sub-command is to main.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

struct CommonOptions {
  unsigned threads = 0;  // 0: all
  bool quiet = false;
  bool verbose = false;
  bool json = false;
  std::string cpu_level;  // empty: the detected one

  // Width to which tables on standard output are narrowed; nothing where nobody reads them on a terminal.
  [[nodiscard]] std::optional<std::size_t> table_width() const;
};

// Adds them to the program or to a sub-command; all write to the same CommonOptions.
void add_common_options(CLI::App& app, CommonOptions& options);

// A registered sub-command. `run` is called when the command line has been parsed and names it; it returns the exit
// status, or an error that main reports.
struct Command {
  CLI::App* app = nullptr;
  std::function<Result<int>()> run;
};

[[nodiscard]] Command add_compress(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_decompress(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_inspect(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_verify(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_diff(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_bench(CLI::App& program, const CommonOptions& common);

}  // namespace bitsnap::cli
