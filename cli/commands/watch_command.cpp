// `bitsnap watch`: takes the checkpoints of a training into a run, each once it is complete.
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/number_option.hpp"
#include "cli/watch/run_watcher.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::chrono::seconds kLongestSettle(86'400);

// The other commands that save take RUN first, too.
Result<void> check_order(const std::string& run, const std::string& directory) {
  std::error_code error;
  if (is_store(run) || !std::filesystem::is_directory(run, error) || !is_store(directory)) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("{0}: is a folder and no run, but {1} is a run; RUN comes first: bitsnap watch {1} {0}", run,
                          directory));
}

Result<int> watch(const WatchOptions& options, const CommonOptions& common) {
  BITSNAP_TRY(check_order(options.save.run, options.directory));
  BITSNAP_TRY(RunWatcher(options, common).run());
  return kExitOk;
}

}  // namespace

Command add_watch(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<WatchOptions>(program, kRunsGroup, "watch", "Save each checkpoint of a training once it is complete");
  add_argument(*app, "RUN", options->save.run, "The directory of the run; made if it is not there");
  add_argument(*app, "DIR", options->directory, "The directory into which the training writes checkpoints");
  add_raw_keeping_options(*app, options->keeping, "Do not delete the N newest checkpoints; default: 1");
  add_seconds_option(*app, "--settle", options->settle, kLongestSettle,
                     "How long a checkpoint without a marker must be unchanged to be complete; default: 30");
  add_seconds_option(*app, "--poll", options->poll, kLongestSettle, "How often to look at DIR; default: 5");
  app->add_flag("--once", options->once, "Save what is complete, and end");
  add_save_options(*app, options->save);
  app->footer(
      "Names of checkpoints are those of `bitsnap ingest`. A checkpoint is complete when its framework marks it so "
      "(Megatron, DeepSpeed, PyTorch DCP, Transformers), and otherwise when nothing in it changes for --settle "
      "seconds.\n"
      "What changes while it is saved is not committed. The command runs at low priority until Ctrl-C or SIGTERM, and "
      "may be killed at any moment. With --json, each event is one line of JSON.");
  return {app, [options, &common] { return watch(*options, common); }, true};
}

}  // namespace bitsnap::cli
