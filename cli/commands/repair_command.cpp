// `bitsnap repair`: makes the undamaged checkpoints of a run usable again, and reports which are damaged or lost.
#include <string>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/store_damage.hpp"
#include "cli/text_format.hpp"

namespace bitsnap {

static void to_json(cli::Json& json, const RepairReport::Mended& mended) {
  json = {{"step", mended.step}, {"what", mended.what}};
}

static void to_json(cli::Json& json, const RepairReport::Dropped& dropped) {
  json = {{"step", dropped.step},
          {"was_pruned", dropped.was_pruned},
          {"moved_to", dropped.moved_to},
          {"damages", dropped.damages}};
}

static void to_json(cli::Json& json, const RepairReport::Damaged& damaged) {
  json = {{"step", damaged.step},
          {"tensors", damaged.tensors},
          {"damaged_tensors", damaged.damaged_tensors},
          {"damages", damaged.damages}};
}

}  // namespace bitsnap

namespace bitsnap::cli {

namespace {

struct RepairCommandOptions {
  std::string run;
  bool dry_run = false;
};

std::string render(const RepairCommandOptions& options, const RepairReport& report) {
  std::string out;
  for (const RepairReport::Mended& mended : report.mended) {
    out += fmt::format("{}: {}: {}\n", mended.step ? fmt::format("step {}", *mended.step) : "the run itself",
                       options.dry_run ? "would mend" : "mended", printable(mended.what));
  }
  for (const RepairReport::Damaged& damaged : report.damaged) {
    out += fmt::format("step {}: {}: {} of {} cannot be read; `bitsnap extract {}@{} --partial` writes the others\n",
                       damaged.step, options.dry_run ? "damaged, would be kept" : "damaged, kept",
                       format_count(damaged.damaged_tensors), format_plural(damaged.tensors, "tensor"),
                       printable(options.run), damaged.step);
    out += render_damages(damaged.damages);
  }
  if (report.newest && !report.damaged.empty() && report.damaged.back().step > *report.newest) {
    out += fmt::format("to train on from step {0}: `bitsnap rollback {1} --to {0}` removes what is damaged above it\n",
                       *report.newest, printable(options.run));
  }
  for (const RepairReport::Dropped& dropped : report.dropped) {
    out += fmt::format("step {}{}: {} {}\n", dropped.step, dropped.was_pruned ? " (pruned before)" : "",
                       options.dry_run ? "lost, would move to" : "lost, moved to", printable(dropped.moved_to));
    out += render_damages(dropped.damages);
  }
  for (const std::string& stray : report.strays) {
    out += fmt::format("{} {}, which belongs to no checkpoint\n", options.dry_run ? "would remove" : "removed",
                       printable(stray));
  }
  return out + fmt::format("{}: {} whole, {} mended, {} damaged, {} lost\n", printable(options.run),
                           format_plural(report.checkpoints, "checkpoint"), format_count(report.mended.size()),
                           format_count(report.damaged.size()), format_count(report.dropped.size()));
}

Result<int> repair(const RepairCommandOptions& options, const CommonOptions& common) {
  BITSNAP_TRY(check_whole_run(options.run));
  ProgressBar bar(run_name(options.run), !common.quiet);
  RepairOptions repair;
  repair.dry_run = options.dry_run;
  repair.run = bar.run(common);
  auto report = Store::repair(options.run, repair);
  bar.clear();
  if (!report) {
    return tl::unexpected(explain_busy(options.run, std::move(report).error(), "repair the run after it has finished"));
  }
  const bool is_whole = report->dropped.empty() && report->damaged.empty();
  if (common.json) {
    print_json({{"run", options.run},
                {"dry_run", options.dry_run},
                {"checkpoints", report->checkpoints},
                {"newest", report->newest},
                {"mended", report->mended},
                {"damaged", report->damaged},
                {"dropped", report->dropped},
                {"strays", report->strays}});
  } else if (!common.quiet || !is_whole) {
    print_result(render(options, *report));
  }
  return is_whole ? kExitOk : exit_code(ErrorKind::corrupt);
}

}  // namespace

Command add_repair(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<RepairCommandOptions>(program, kRunsGroup, "repair",
                                                          "Repair a damaged run, and report what is damaged or lost");
  add_argument(*app, "RUN", options->run, "The directory of the run");
  app->add_flag("-n,--dry-run", options->dry_run, "Print what would be done, and change nothing");
  app->footer(
      "The exit status is 0 if no checkpoint is damaged or lost, and 15 otherwise. A damaged checkpoint stays in the "
      "run: `bitsnap extract RUN@STEP --partial` writes what can be read of it. Files of lost checkpoints are kept.\n"
      "Files that belong to no checkpoint are removed: killed writers left them.");
  return {app, [options, &common] { return repair(*options, common); }};
}

}  // namespace bitsnap::cli
