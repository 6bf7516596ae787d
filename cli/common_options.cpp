// The options that all sub-commands share.
#include "cli/common_options.hpp"

#include <cstdio>

#include "cli/console.hpp"
#include "cli/number_option.hpp"

namespace bitsnap::cli {

namespace {

constexpr unsigned kMostThreads = 4096;
constexpr std::chrono::seconds kLongestWait(86'400'000);

}  // namespace

std::optional<std::size_t> CommonOptions::table_width() const { return terminal_width(stdout); }

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_option("-T,--threads", options.threads, "Number of threads; 0: all that this process may use")
      ->type_name("N")
      ->check(CLI::Range(0U, kMostThreads).description(""))
      ->group("Common options");
  app.add_flag("-q,--quiet", options.quiet, "Print only errors and the requested output")->group("Common options");
  app.add_flag("-v,--verbose", options.verbose, "Print more")->group("Common options");
  app.add_flag("--json", options.json, "Print the result as JSON on standard output")->group("Common options");
  app.add_option("--cpu-level", options.cpu_level, "Force the CPU level of the kernels: scalar, avx2, avx512 or neon")
      ->type_name("LEVEL")
      ->group("");  // hidden: for tests and measurements
}

void add_wait_option(CLI::App& app, std::chrono::milliseconds& wait) {
  add_seconds_option(app, "--wait", wait, kLongestWait,
                     "How long to wait for another writer, such as 0.5; default: do not wait");
}

void add_shard_option(CLI::App& app, std::optional<std::uint64_t>& shard) {
  add_number_option(app, "--shard", shard, 0, "Shard to read, counted from 0; required if the checkpoint has several");
}

}  // namespace bitsnap::cli
