// `bitsnap mirror`: makes a copy of a run in another place, such as an object store, and lets it follow the run.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
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
constexpr const char* kStatusName = "mirror.json";

struct MirrorCommandOptions {
  std::string from;
  std::string to;
  double megabytes_per_second = 0;
  bool watches = false;
  std::chrono::milliseconds poll{2'000};
  std::optional<std::chrono::milliseconds> idle;
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
class Follower {
 public:
  Follower(const MirrorCommandOptions& options, const MirrorOptions& mirroring, const CommonOptions& common)
      : options_(options), mirroring_(mirroring), common_(common) {}

  Result<int> run() {
    while (!must_end()) {
      auto mirror = Mirror::open(options_.from, options_.to, mirroring_);
      Result<MirrorReport> report = mirror ? MirrorReport() : Result<MirrorReport>(tl::unexpected(mirror.error()));
      while (report && !must_end()) {
        note("");
        report = mirror->update();
        if (report) on_update(*report);
      }
      if (!report && interrupt_signal() != 0 && !common_.quiet) {
        print_note(fmt::format("{}: stopped before it was like {}; the next `bitsnap mirror` goes on\n", options_.to,
                               options_.from));
      }
      if (report || interrupt_signal() != 0) break;
      const Error& error = report.error();
      last_ = error;
      is_failing_ = true;
      if (options_.idle && (!is_store(options_.from) || is_followed_by_another())) return kExitOk;
      note(error.message());
      const bool may_pass =
          error.kind() == ErrorKind::io || error.kind() == ErrorKind::busy || error.kind() == ErrorKind::not_found;
      if (!may_pass) return tl::unexpected(error);
      if (said_ != error.message()) print_error(error.message(), error_kind_name(error.kind()));
      said_ = error.message();
      rest();
    }
    if (!last_ || interrupt_signal() != 0) return kExitOk;
    return fail(last_->kind(), is_failing_ ? "gave up: " + last_->message() : last_->message());
  }

 private:
  void on_update(const MirrorReport& report) {
    const std::string failure = report.failure ? report.failure->message() : "";
    if (report.failure && said_ != failure) print_error(failure, error_kind_name(report.failure->kind()));
    said_ = failure;
    last_ = report.failure;
    is_failing_ = false;
    newest_ = report.newest;
    if (is_first_ || has_changed(report)) {
      print_update(report, options_, common_);
      changed_ = Clock::now();
    }
    is_first_ = false;
    note(failure);
    rest();
  }

  // What fails is tried for longer: a service may be away for a while, and after the last save of a training nobody
  // starts this again.
  [[nodiscard]] bool must_end() const {
    constexpr int kFailing = 4;
    const int factor = is_first_ || is_failing_ ? kFailing : 1;
    return interrupt_signal() != 0 || (options_.idle && Clock::now() - changed_ > *options_.idle * factor);
  }

  // By what another process of this kind has noted.
  [[nodiscard]] bool is_followed_by_another() const {
    std::ifstream file(std::filesystem::path(options_.from) / kStatusName);
    const Json status = Json::parse(file, nullptr, false);
    if (!status.is_object() || !status.contains("copy") || status["copy"] != options_.to) return false;
    if (!status.contains("process") || !status["process"].is_number_integer()) return false;
    const auto process = status["process"].get<std::int64_t>();
    std::error_code failure;
    return process != process_number() && std::filesystem::exists(fmt::format("/proc/{}", process), failure);
  }

  void rest() const {
    for (const auto until = Clock::now() + options_.poll; Clock::now() < until && !must_end();) {
      std::this_thread::sleep_for(kSlice);
    }
  }

  // Says in the run how far the copy has come. A run in an object store gets no such file.
  void note(const std::string& error) {
    std::error_code failure;
    if (!std::filesystem::is_directory(options_.from, failure)) return;
    const auto steps = open_to_read(options_.from).and_then([](const auto& store) { return store->steps(); });
    if (!steps) return;
    std::vector<std::uint64_t> waiting;
    for (const std::uint64_t step : *steps) {
      if (!newest_ || step > *newest_) waiting.push_back(step);
    }
    const Json status = {{"process", process_number()},
                         {"copy", options_.to},
                         {"newest", newest_ ? Json(*newest_) : Json()},
                         {"waiting", waiting},
                         {"error", error.empty() ? Json() : Json(error)}};
    const std::string text = status.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (text == noted_) return;
    const std::filesystem::path path = std::filesystem::path(options_.from) / kStatusName;
    const std::filesystem::path temporary = path.string() + fmt::format(".{:016x}.tmp", random_number());
    bool is_written = false;
    {
      std::ofstream file(temporary, std::ios::binary);
      is_written = static_cast<bool>(file.write(text.data(), static_cast<std::streamsize>(text.size())).flush());
    }
    if (is_written) std::filesystem::rename(temporary, path, failure);
    if (!is_written || failure) std::filesystem::remove(temporary, failure);
    noted_ = text;
  }

  const MirrorCommandOptions& options_;
  const MirrorOptions& mirroring_;
  const CommonOptions& common_;
  std::optional<std::uint64_t> newest_;  // checkpoint of the copy
  bool is_first_ = true;
  bool is_failing_ = false;    // the last update did not come to its end
  std::optional<Error> last_;  // of the last update
  std::string said_;           // the last error that was printed
  std::string noted_;          // what the file says
  Clock::time_point changed_ = Clock::now();
};

Result<int> mirror(const MirrorCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const RunPath from, parse_run_path(options.from));
  BITSNAP_TRY(open_to_read(from.run));  // says what is there instead of a run
  MirrorOptions mirroring;
  mirroring.step = from.step;
  mirroring.bytes_per_second = static_cast<std::uint64_t>(std::ceil(options.megabytes_per_second * 1e6));
  mirroring.timeout_ms = static_cast<std::uint64_t>(options.wait.count());
  mirroring.follows = options.watches;
  mirroring.interrupted = [] { return interrupt_signal() != 0; };
  MirrorCommandOptions named = options;
  named.from = from.run;
  if (options.watches) return Follower(named, mirroring, common).run();
  ProgressBar bar(run_name(from.run), !common.quiet);
  mirroring.progress = bar.run(common).progress;
  auto opened = Mirror::open(from.run, options.to, mirroring);
  if (!opened)
    return tl::unexpected(explain_busy(options.to, std::move(opened).error(), "--wait SECONDS waits for it"));
  BITSNAP_ASSIGN(const MirrorReport report, opened->update());
  bar.clear();
  print_update(report, named, common);
  if (report.keeps_removed && !common.quiet) {
    print_note(fmt::format("{}: cannot be written, so that {} keeps checkpoints that are removed from it\n", from.run,
                           options.to));
  }
  if (report.failure) return tl::unexpected(*report.failure);
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
  app->add_option_function<double>(
         "--idle",
         [options](double seconds) {
           options->idle = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
         },
         "With --watch: end when nothing has changed for so long, or for 4 times as long while copying fails")
      ->type_name("SECONDS")
      ->check(CLI::PositiveNumber.description(""));
  app->add_option("--rate", options->megabytes_per_second, "The most megabytes to send each second")
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
  return {app, [options, &common] { return mirror(*options, common); }, true};
}

}  // namespace bitsnap::cli
