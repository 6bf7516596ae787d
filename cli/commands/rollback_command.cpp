// `bitsnap rollback`: makes an earlier checkpoint the newest one of its run.
#include <chrono>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct RollbackOptions {
  std::string run;
  std::optional<std::uint64_t> step;
  bool dry_run = false;
  std::optional<std::string> kept_as;  // the branch that gets what is removed
  std::chrono::milliseconds wait{0};
};

// The report that Store::rollback() would return.
Result<RollbackReport> foresee(const Store& store, std::uint64_t step) {
  if (auto info = store.checkpoint(step); !info && info.error().kind() == ErrorKind::not_found) {
    return tl::unexpected(std::move(info).error());
  }
  BITSNAP_ASSIGN(auto checkpoints, store.checkpoints());
  RollbackReport report;
  for (auto info = checkpoints.rbegin(); info != checkpoints.rend() && info->step > step; ++info) {
    report.removed.push_back(info->step);
    report.removed_bytes += info->stored_bytes;
  }
  return report;
}

Result<RollbackReport> roll_back(const RollbackOptions& options) {
  if (options.dry_run) {
    return open_to_read(options.run).and_then([&](const auto& store) { return foresee(*store, *options.step); });
  }
  return open_to_write(options.run, {.create = false}, options.wait)
      .and_then([&](const auto& store) -> Result<RollbackReport> {
        if (options.kept_as) {
          BITSNAP_ASSIGN(RollbackReport foreseen, foresee(*store, *options.step));
          if (foreseen.removed.empty()) return foreseen;
          BITSNAP_TRY(store->make_branch(*options.kept_as, *options.step, {.with_later = true}));
        }
        return store->rollback(*options.step);
      });
}

std::string render(const RollbackOptions& options, const RollbackReport& report) {
  std::string out;
  for (const std::uint64_t step : report.removed) {
    out += fmt::format("{} step {}\n", options.dry_run ? "would remove" : "removed", step);
  }
  if (report.removed.empty()) return fmt::format("nothing to remove: step {} is the newest\n", *options.step);
  const std::string_view removed = options.dry_run ? "would remove" : "removed";
  const std::string checkpoints = format_plural(report.removed.size(), "checkpoint");
  const std::string_view is = options.dry_run ? "would be" : "is";
  if (options.kept_as) {
    return out + fmt::format("{} {}, which {} in the branch {}; step {} {} the newest\n", removed, checkpoints,
                             options.dry_run ? "would stay" : "stay", printable(*options.kept_as), *options.step, is);
  }
  out += fmt::format("{} {}, {} {}; step {} {} the newest\n", removed, checkpoints, options.dry_run ? "free" : "freed",
                     format_size(report.removed_bytes), *options.step, is);
  return options.dry_run ? out + "--keep-as NAME keeps them in a branch\n" : out;
}

Result<int> rollback(const RollbackOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto report, roll_back(options));
  if (common.json) {
    print_json({{"run", options.run},
                {"dry_run", options.dry_run},
                {"newest", *options.step},
                {"removed", report.removed},
                {"removed_bytes", report.removed_bytes},
                {"kept_as", options.kept_as}});
  } else if (!common.quiet) {
    print_result(render(options, report));
  }
  return kExitOk;
}

}  // namespace

Command add_rollback(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<RollbackOptions>(program, kRunsGroup, "rollback",
                                                     "Remove all checkpoints of a run after one of them");
  add_argument(*app, "RUN", options->run, "The directory of the run");
  add_number_option(*app, "--to", options->step, 0, "The step that becomes the newest")->required();
  app->add_flag("-n,--dry-run", options->dry_run, "Print what would be removed, and change nothing");
  app->add_option("--keep-as", options->kept_as, "Keep what is removed in a new branch of this name, from STEP on")
      ->type_name("NAME");
  add_wait_option(*app, options->wait);
  app->footer(
      "A store only accepts steps above its newest one. After a rollback the removed steps can be saved again.");
  return {app, [options, &common] { return rollback(*options, common); }};
}

}  // namespace bitsnap::cli
