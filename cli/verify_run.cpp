// The verification of a run.
#include "cli/verify_run.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include <fmt/format.h>

#include "cli/error_macros.hpp"
#include "cli/progress_bar.hpp"
#include "cli/store_damage.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

// The store's report does not list the verified steps: they are the steps that exist before and after it.
Result<void> verify_store(const Store& store, const StoreVerifyOptions& options, RunReport& report) {
  BITSNAP_ASSIGN(auto steps, options.steps.empty() ? store.steps() : options.steps);
  BITSNAP_ASSIGN(auto verification, store.verify(options));
  BITSNAP_ASSIGN(auto still, store.steps());
  for (const std::uint64_t step : steps) {
    if (std::binary_search(still.begin(), still.end(), step)) {
      report.checkpoints[step];
    }
  }
  for (StoreDamage& damage : verification.damages) {
    report.checkpoints[damage.step].push_back(std::move(damage));
  }
  report.bytes = verification.bytes;
  report.strays = std::move(verification.strays);
  return {};
}

}  // namespace

std::size_t RunReport::damaged() const noexcept {
  return static_cast<std::size_t>(
      std::count_if(checkpoints.begin(), checkpoints.end(), [](const auto& entry) { return !entry.second.empty(); }));
}

ErrorKind RunReport::kind() const noexcept {
  if (error) {
    return error->kind();
  }
  for (const auto& [step, damages] : checkpoints) {
    if (!damages.empty()) {
      return damages.front().error.kind();
    }
  }
  return ErrorKind::internal;
}

RunReport verify_run(const std::string& path, const RunPath& run, bool decode, const CommonOptions& common) {
  RunReport report;
  report.path = path;
  report.run = run.run;
  const auto start = std::chrono::steady_clock::now();
  auto store = open_to_read(run.run);
  if (!store) {
    report.error = std::move(store).error();
    return report;
  }
  if (run.step) {
    // A step that does not exist is a mistake of the user, not a damage.
    if (auto info = (*store)->info(*run.step); !info && info.error().kind() == ErrorKind::not_found) {
      report.error = std::move(info).error();
      return report;
    }
  }
  ProgressBar bar(run_name(run.run), !common.quiet);
  StoreVerifyOptions options;
  options.decode = decode;
  options.run.threads = common.threads;
  options.run.progress = bar.callback();
  if (run.step) {
    options.steps.push_back(*run.step);
  }
  if (auto verified = verify_store(**store, options, report); !verified) {
    report.error = std::move(verified).error();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void print_report(const RunReport& report, const CommonOptions& common) {
  std::string out;
  for (const auto& [step, damages] : report.checkpoints) {
    const std::string name = printable(checkpoint_name(report.run, step));
    if (!damages.empty()) {
      out += fmt::format("{}: {}\n", name, format_plural(damages.size(), "damage")) + render_damages(damages);
    } else if (!common.quiet) {
      out += fmt::format("{}: OK\n", name);
    }
  }
  if (report.error) {
    out += fmt::format("{}: FAILED [{}]: {}\n", printable(report.path), error_kind_name(report.error->kind()),
                       printable(report.error->message()));
  } else if (common.verbose || (report.checkpoints.empty() && !common.quiet)) {
    out += fmt::format("{}: {}, {} read, {}\n", printable(report.path),
                       format_plural(report.checkpoints.size(), "checkpoint"), format_size(report.bytes),
                       format_speed(report.bytes, report.seconds));
  }
  print_result(out);
  if (report.damaged() > 0 && report.checkpoints.size() > 1) {
    print_note(fmt::format("bitsnap: {} of {} of {} damaged; `bitsnap repair` repairs what it can\n",
                           format_count(report.damaged()), format_plural(report.checkpoints.size(), "checkpoint"),
                           printable(report.run)));
  }
  if (!report.strays.empty() && !common.quiet) {
    const std::size_t strays = report.strays.size();
    print_note(fmt::format(
        "{}: {} to no checkpoint: a writer is running, or was killed; `bitsnap repair` recovers checkpoints "
        "without a record and removes the other files, as `bitsnap prune` does\n",
        printable(report.run),
        strays == 1 ? "1 file or folder belongs" : fmt::format("{} files or folders belong", format_count(strays))));
  }
}

Json to_json(const RunReport& report) {
  Json document = {{"path", report.path}, {"run", report.run}, {"ok", report.ok()}};
  if (report.error) {
    document["error"] = to_json(*report.error);
  }
  document["bytes"] = report.bytes;
  document["seconds"] = report.seconds;
  document["checkpoints"] = Json::array();
  for (const auto& [step, damages] : report.checkpoints) {
    document["checkpoints"].push_back({{"step", step}, {"ok", damages.empty()}, {"damages", to_json(damages)}});
  }
  document["strays"] = report.strays;
  return document;
}

}  // namespace bitsnap::cli
