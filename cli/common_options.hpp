// The options that all sub-commands share, and how main() finds and runs a sub-command.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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
  std::string cpu_level;  // empty: the detected level

  // Width to which tables on standard output are narrowed; nullopt if standard output is not a terminal.
  [[nodiscard]] std::optional<std::size_t> table_width() const;
};

// Headings of the sub-commands in --help.
inline constexpr const char* kRunsGroup = "Runs: the checkpoints of a training in one directory";
inline constexpr const char* kFilesGroup = "Files: one snapshot each";
inline constexpr const char* kBothGroup = "Both: files, and checkpoints as RUN@STEP";

// Adds the options to the program or to a sub-command; all of them write to the same CommonOptions.
void add_common_options(CLI::App& app, CommonOptions& options);

// --wait: how long to wait for another writer of a run. `wait` must outlive the parsing.
void add_wait_option(CLI::App& app, std::chrono::milliseconds& wait);

// --shard: for commands that read one shard of a checkpoint. `shard` must outlive the parsing.
void add_shard_option(CLI::App& app, std::optional<std::uint64_t>& shard);

// A registered sub-command. If the command line names it, main() calls `run`, which returns the exit status or an error
// that main() reports.
struct Command {
  CLI::App* app = nullptr;
  std::function<Result<int>()> run;
};

[[nodiscard]] Command add_add(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_agent(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_log(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_extract(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_prune(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_rollback(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_repair(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_du(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_compress(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_decompress(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_inspect(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_verify(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_diff(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_analyze(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_bench(CLI::App& program, const CommonOptions& common);

}  // namespace bitsnap::cli
