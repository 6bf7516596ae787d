// `bitsnap mirror`: makes a copy of a run in another place, such as an object store, and lets it follow the run.
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bitsnap/mirror.hpp>
#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/operating_system.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSlice(100);
constexpr std::chrono::seconds kLongestPoll(86'400);

struct MirrorCommandOptions {
  std::string from;
  std::string to;
  double megabytes_per_second = 0;
  bool watches = false;
  std::chrono::milliseconds poll{2'000};
  std::chrono::milliseconds wait{0};
};

std::string steps_text(std::string_view verb, const std::vector<std::uint64_t>& steps) {
  constexpr std::size_t kMost = 10;
  if (steps.empty()) return "";
  if (steps.size() > kMost) return fmt::format("{} {} checkpoints", verb, steps.size());
  return fmt::format("{} step{} {}", verb, steps.size() == 1 ? "" : "s", fmt::join(steps, ", "));
}

void print_update(const MirrorReport& report, const MirrorCommandOptions& options, const CommonOptions& common) {
  if (common.json) {
    print_json_line({{"run", options.from},
                     {"copy", options.to},
                     {"added", report.added},
                     {"changed", report.changed},
                     {"removed", report.removed},
                     {"sent_bytes", report.sent_bytes},
                     {"newest", report.newest ? Json(*report.newest) : Json()}});
    return;
  }
  if (common.quiet) return;
  std::vector<std::string> parts;
  for (std::string part : {steps_text("added", report.added), steps_text("changed", report.changed),
                           steps_text("removed", report.removed)}) {
    if (!part.empty()) parts.push_back(std::move(part));
  }
  if (parts.empty()) parts.emplace_back("nothing to do");
  print_result(fmt::format("{}: {} ({})\n", options.to, fmt::join(parts, ", "), format_size(report.sent_bytes)));
}

bool has_changed(const MirrorReport& report) {
  return !report.added.empty() || !report.changed.empty() || !report.removed.empty();
}

// A copy that follows the run until an interrupt. What fails is tried again: a service may be away for hours.
Result<int> follow(const MirrorCommandOptions& options, const MirrorOptions& mirroring, const CommonOptions& common) {
  bool is_first = true;
  std::string said;
  while (interrupt_signal() == 0) {
    auto mirror = Mirror::open(options.from, options.to, mirroring);
    auto report = mirror ? mirror->update() : tl::unexpected(mirror.error());
    while (report && interrupt_signal() == 0) {
      said.clear();
      if (is_first || has_changed(*report)) print_update(*report, options, common);
      is_first = false;
      for (const auto until = Clock::now() + options.poll; Clock::now() < until && interrupt_signal() == 0;) {
        std::this_thread::sleep_for(kSlice);
      }
      report = mirror->update();
    }
    if (report || interrupt_signal() != 0) break;
    const Error& error = report.error();
    const bool may_pass =
        error.kind() == ErrorKind::io || error.kind() == ErrorKind::busy || error.kind() == ErrorKind::not_found;
    if (!may_pass) return tl::unexpected(error);
    if (said != error.message()) print_error(error.message(), error_kind_name(error.kind()));
    said = error.message();
    std::this_thread::sleep_for(options.poll);
  }
  return kExitOk;
}

Result<int> mirror(const MirrorCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const RunPath from, parse_run_path(options.from));
  BITSNAP_TRY(open_to_read(from.run));  // says what is there instead of a run
  MirrorOptions mirroring;
  mirroring.step = from.step;
  mirroring.bytes_per_second = static_cast<std::uint64_t>(options.megabytes_per_second * 1e6);
  mirroring.timeout_ms = static_cast<std::uint64_t>(options.wait.count());
  mirroring.interrupted = [] { return interrupt_signal() != 0; };
  MirrorCommandOptions named = options;
  named.from = from.run;
  if (options.watches) return follow(named, mirroring, common);
  ProgressBar bar(run_name(from.run), !common.quiet);
  mirroring.progress = bar.run(common).progress;
  auto opened = Mirror::open(from.run, options.to, mirroring);
  if (!opened)
    return tl::unexpected(explain_busy(options.to, std::move(opened).error(), "--wait SECONDS waits for it"));
  BITSNAP_ASSIGN(const MirrorReport report, opened->update());
  bar.clear();
  print_update(report, named, common);
  return kExitOk;
}

}  // namespace

Command add_mirror(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<MirrorCommandOptions>(
      program, kRunsGroup, "mirror", "Keep a copy of a run in another place, such as an object store");
  add_argument(*app, "RUN[@STEP]", options->from, "The run; or a checkpoint, which is added to COPY");
  add_argument(*app, "COPY", options->to, "The copy, a directory or an address; made if it is not there");
  app->add_flag("--watch", options->watches, "Follow the run until Ctrl-C or SIGTERM");
  add_seconds_option(*app, "--poll", options->poll, kLongestPoll, "With --watch: how often to look at RUN; default: 2");
  app->add_option("--rate", options->megabytes_per_second, "Send at most so many MB each second")
      ->type_name("MB")
      ->check(CLI::PositiveNumber.description(""));
  add_wait_option(*app, options->wait);
  app->footer(
      "The copy is a run at every moment: files come first, the record of a checkpoint last. Checkpoints that are "
      "removed from RUN are removed from COPY, but those that COPY had from elsewhere stay. RUN@STEP removes nothing: "
      "`bitsnap mirror s3://bucket/run@latest run` brings a checkpoint back, and a training that goes on in `run` may "
      "be mirrored to the same address. Branches are not copied.");
  app->callback([options] {
    if (options->watches && options->from.find('@') != std::string::npos && !is_store(options->from)) {
      throw CLI::ValidationError("--watch", "follows a whole run, not RUN@STEP");
    }
  });
  return {app, [options, &common] { return mirror(*options, common); }, options->watches};
}

}  // namespace bitsnap::cli
