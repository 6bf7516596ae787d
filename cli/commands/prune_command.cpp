// `bitsnap prune`: removes the checkpoints of a run that no --keep option keeps, or those that --remove names.
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/retention_options.hpp"

namespace bitsnap::cli {

namespace {

struct PruneCommandOptions {
  std::string run;
  Retention retention;
  std::vector<std::uint64_t> removed;
  std::string reencode = "auto";
  bool dry_run = false;
  std::chrono::milliseconds wait{0};
};

const std::map<std::string, Reencode> kReencode = {
    {"auto", Reencode::when_it_pays}, {"never", Reencode::never}, {"always", Reencode::always}};

Result<int> prune(const PruneCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto store, options.dry_run ? open_to_read(options.run)
                                             : open_to_write(options.run, {.create = false}, options.wait));
  PruneOptions prune;
  prune.reencode = kReencode.at(options.reencode);
  prune.dry_run = options.dry_run;
  const auto run = [&] {
    return options.removed.empty() ? store->prune(options.retention, prune) : store->remove(options.removed, prune);
  };
  if (!common.quiet && !options.dry_run) {
    prune.dry_run = true;
    BITSNAP_ASSIGN(const PruneReport outlook, run());
    prune.dry_run = false;
    print_note(run_name(options.run) + ": " + render_outlook(outlook));
  }
  ProgressBar bar(run_name(options.run), !common.quiet);
  prune.run = bar.run(common);
  BITSNAP_ASSIGN(const PruneReport pruning, run());
  bar.clear();
  if (common.json) {
    Json document = {{"run", options.run}};
    document.update(Json(pruning));
    print_json(document);
  } else if (!common.quiet) {
    print_result(render_pruning(pruning, first_own_step(*store)));
  }
  return kExitOk;
}

}  // namespace

Command add_prune(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<PruneCommandOptions>(
      program, kRunsGroup, "prune", "Remove checkpoints of a run: those that no --keep option keeps, or some steps");
  add_argument(*app, "RUN", options->run, "The directory of the run");
  add_keep_options(*app, options->retention);
  add_keep_steps_option(*app, options->retention);
  CLI::Option* remove = add_numbers_option(*app, "--remove", options->removed, "Remove these steps, and no others");
  for (const char* keep : {"--keep-last", "--keep-every", "--keep", "--keep-labelled"}) {
    remove->excludes(app->get_option(keep));
  }
  app->add_option("--reencode", options->reencode,
                  "Rewrite checkpoints that depend on a removed one; auto: if that frees more bytes than it writes; "
                  "never; always")
      ->type_name("WHEN")
      ->check(CLI::IsMember(kReencode).description(""))
      ->capture_default_str();
  app->add_flag("-n,--dry-run", options->dry_run, "Print what would be done, and change nothing");
  add_wait_option(*app, options->wait);
  app->footer(
      "A checkpoint stays if any --keep option keeps it. The newest one always stays, unless --remove names it.");
  app->callback([options] {
    if (!is_given(options->retention) && options->removed.empty()) {
      throw CLI::RequiredError("--keep-last, --keep-every, --keep, --keep-labelled or --remove");
    }
  });
  return {app, [options, &common] { return prune(*options, common); }};
}

}  // namespace bitsnap::cli
