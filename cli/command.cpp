// The options that all sub-commands share, and their output.
#include "cli/command.hpp"

#include <cstdio>

#include <fmt/format.h>

#include <bitsnap/text.hpp>

#include "cli/number_option.hpp"
#include "cli/operating_system.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::uint64_t kMostThreads = 4096;
constexpr std::uint64_t kMostSampleMegabytes = 1'000'000;
constexpr double kLowestMaxCost = 1e-9;
constexpr double kHighestMaxCost = 1e9;
constexpr std::chrono::seconds kLongestWait(86'400'000);

}  // namespace

std::optional<std::size_t> CommonOptions::table_width() const { return terminal_width(stdout); }

void add_common_options(CLI::App& app, CommonOptions& options) {
  add_number_option(
      app, "-T,--threads", 0, kMostThreads,
      [&options](std::uint64_t threads) { options.threads = static_cast<unsigned>(threads); },
      "Number of threads; 0: all that this process may use")
      ->group("Common options");
  app.add_flag("-q,--quiet", options.quiet, "Print only errors and the requested output")->group("Common options");
  app.add_flag("-v,--verbose", options.verbose, "Print more")->group("Common options");
  app.add_flag("--json", options.json, "Print the result as JSON on standard output")->group("Common options");
  add_real_option(
      app, "--max-cost", kLowestMaxCost, kHighestMaxCost, [&options](double factor) { options.max_cost = factor; },
      "Multiply the limits on what reading a file may cost; above 1 only for files that you trust")
      ->type_name("FACTOR")
      ->group("Common options");
  app.add_option("--cpu-level", options.cpu_level, "Force the CPU level of the kernels: scalar, avx2, avx512 or neon")
      ->type_name("LEVEL")
      ->group("");  // hidden: for tests and measurements
}

void add_wait_option(CLI::App& app, std::chrono::milliseconds& wait) {
  add_seconds_option(app, "--wait", wait, kLongestWait,
                     "How long to wait for another writer, such as 0.5; default: do not wait");
}

void add_shard_option(CLI::App& app, std::optional<std::uint64_t>& shard) {
  add_number_option(app, "--shard", shard, 0, "Only this shard of a checkpoint, counted from 0");
}

CLI::Option* add_sample_option(CLI::App& app, const std::function<void(std::uint64_t)>& set,
                               const std::string& description) {
  return add_number_option(app, "--limit-mb", 1, kMostSampleMegabytes, set, description)->type_name("MB");
}

CLI::Option* add_base_option(CLI::App& app, std::vector<std::string>& bases, const std::string& description) {
  return app.add_option("--base", bases, description)->type_name("BASE.bsnap")->allow_extra_args(false);
}

void print_result(std::string_view text) { print_exact(printable(text, "\n")); }

void print_note(std::string_view text) {
  const std::string lines = printable(text, "\n");
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  std::fflush(stderr);
}

void print_exact(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

namespace {

// A word in colour, on a terminal, unless the user wants none (no-color.org).
void print_message(std::string_view word, std::string_view color, std::string_view message, std::string_view kind) {
  static const bool has_color = is_terminal(stderr) && wants_color();
  std::string text =
      has_color ? fmt::format("bitsnap: \x1b[1;{}m{}:\x1b[0m ", color, word) : fmt::format("bitsnap: {}: ", word);
  std::fwrite(text.data(), 1, text.size(), stderr);
  print_note(fmt::format("{} [{}]\n", printable(message), kind));
}

}  // namespace

void print_error(std::string_view message, std::string_view kind) { print_message("error", "31", message, kind); }

void print_warning(std::string_view message, std::string_view kind) { print_message("warning", "33", message, kind); }

namespace {

std::string indented(const Json& document) { return document.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace

void print_json(const Json& document) { print_exact(indented(document) + '\n'); }

void print_json_line(const Json& document) {
  print_exact(document.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  std::fflush(stdout);
}

void print_json(const Json& object, std::string_view last_key, std::string_view last_value) {
  std::string text = indented(object);
  text.erase(text.rfind('\n'));
  print_exact(fmt::format("{},\n  \"{}\": {}\n}}\n", text, last_key, last_value));
}

Json ratio_json(std::uint64_t raw_bytes, std::uint64_t stored_bytes) {
  return stored_bytes == 0 ? Json() : Json(static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes));
}

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const Error& error) {
  json = {{"kind", error_kind_name(error.kind())},
          {"message", error.message()},
          {"exit_code", cli::exit_code(error.kind())}};
}

void to_json(cli::Json& json, const TensorInfo& tensor) {
  json = {{"name", tensor.name},
          {"dtype", tensor.dtype_name},
          {"shape", tensor.shape},
          {"role", role_name(tensor.role)},
          {"raw_bytes", tensor.size_bytes}};
}

}  // namespace bitsnap
