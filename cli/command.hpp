// What every sub-command is made of: its registration, the options that all share, exit codes, output, and the passing
// on of errors.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

#include "src/base/try.hpp"

namespace bitsnap::cli {

// ---- exit codes. Scripts rely on them: they are documented in docs/guide/cli.md and in --help, and do not change.

inline constexpr int kExitOk = 0;
inline constexpr int kExitDiffer = 1;  // `diff` only, as in diff(1)
inline constexpr int kExitUsage = 2;   // the command line itself is wrong

// Of an error of the library.
[[nodiscard]] constexpr int exit_code(ErrorKind kind) noexcept { return 10 + static_cast<int>(kind); }

// 128 plus the signal, as in shells.
[[nodiscard]] constexpr int exit_code_of_signal(int signal) noexcept { return 128 + signal; }

// ---- options

struct CommonOptions {
  unsigned threads = 0;  // 0: all
  bool quiet = false;
  bool verbose = false;
  bool json = false;
  std::optional<double> max_cost;
  std::string cpu_level;  // empty: the detected level

  // Width to which tables on standard output are narrowed; nullopt if standard output is not a terminal.
  [[nodiscard]] std::optional<std::size_t> table_width() const;
};

// Adds the options to the program or to a sub-command; all of them write to the same CommonOptions.
void add_common_options(CLI::App& app, CommonOptions& options);

// --wait: how long to wait for another writer of a run. `wait` must outlive the parsing.
void add_wait_option(CLI::App& app, std::chrono::milliseconds& wait);

// --shard: for commands that read one shard of a checkpoint. `shard` must outlive the parsing.
void add_shard_option(CLI::App& app, std::optional<std::uint64_t>& shard);

// --limit-mb: the size of a sample. `set` is called with it.
CLI::Option* add_sample_option(CLI::App& app, const std::function<void(std::uint64_t)>& set,
                               const std::string& description);

// --base: files and folders. `bases` must outlive the parsing.
CLI::Option* add_base_option(CLI::App& app, std::vector<std::string>& bases, const std::string& description);

// ---- output: results on standard output, everything else on standard error. A failure to write a result stays in the
// stream until main() reports it; a failure to write a note is ignored.

using Json = nlohmann::ordered_json;  // keeps the order in which keys are set

// Lines for people, on standard output and standard error. Text from files must not control the terminal, so these
// print it printable (bitsnap/text.hpp), except line ends. Names in lines and tables must be printable before, because
// they may contain line ends.
void print_result(std::string_view text);
void print_note(std::string_view text);
// Text for programs, on standard output, as it is.
void print_exact(std::string_view text);
// "bitsnap: error: <message> [<kind>]"
void print_error(std::string_view message, std::string_view kind);
// "bitsnap: warning: <message> [<kind>]"
void print_warning(std::string_view message, std::string_view kind);

// A command prints one document, or a line for each of its events. A document is indented by two spaces and ends with a
// line end; bytes that are not UTF-8, which paths may contain, become U+FFFD.
void print_json(const Json& document);
// The same on one line, which programs can read at once.
void print_json_line(const Json& document);
// The same, with one more member at the end of the object, whose value is given as JSON text: for values that are many
// times larger as a document than as text.
void print_json(const Json& object, std::string_view last_key, std::string_view last_value);

// raw / stored; null if nothing is stored.
[[nodiscard]] Json ratio_json(std::uint64_t raw_bytes, std::uint64_t stored_bytes);

// ---- registration

// Headings of the sub-commands in --help.
inline constexpr const char* kRunsGroup = "Runs: the checkpoints of a training in one directory";
inline constexpr const char* kFilesGroup = "Files: one snapshot each";
inline constexpr const char* kBothGroup = "Both: files, and checkpoints as RUN@STEP or RUN@LABEL";

// A registered sub-command. If the command line names it, main() calls `run`, which returns the exit status or an error
// that main() reports.
struct Command {
  CLI::App* app = nullptr;
  std::function<Result<int>()> run;
  bool json_lines = false;  // with --json, it prints lines
};

// A sub-command that is being registered, and its options, which outlive the parsing.
template <typename Options>
struct NewCommand {
  CLI::App* app = nullptr;
  std::shared_ptr<Options> options = std::make_shared<Options>();
};

template <typename Options>
[[nodiscard]] NewCommand<Options> new_command(CLI::App& program, const char* group, const char* name,
                                              const char* description) {
  CLI::App* app = program.add_subcommand(name, description);
  app->group(group);
  return {app};
}

// A positional that must be given. `value` must outlive the parsing.
template <typename Value>
CLI::Option* add_argument(CLI::App& app, const char* name, Value& value, const char* description) {
  return app.add_option(name, value, description)->required()->type_name("");
}

[[nodiscard]] Command add_add(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_ingest(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_watch(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_agent(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_label(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_branch(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_estimate(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_log(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_extract(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_mirror(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_prune(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_rollback(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_repair(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_du(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_compress(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_decompress(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_inspect(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_verify(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_convert(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_diff(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_analyze(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_bench(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_completion(CLI::App& program, const CommonOptions& common);
[[nodiscard]] Command add_man(CLI::App& program, const CommonOptions& common);

}  // namespace bitsnap::cli

namespace bitsnap {

// kind, message and exit code.
void to_json(cli::Json& json, const Error& error);
// name, dtype, shape, role and bytes.
void to_json(cli::Json& json, const TensorInfo& tensor);

}  // namespace bitsnap

// nlohmann-json 3.11 does not know std::optional: nullopt is null.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(bitsnap::cli::Json& json, const std::optional<T>& value) {
    json = value ? bitsnap::cli::Json(*value) : bitsnap::cli::Json();
  }
};
