// `bitsnap branch`: lists, makes and removes the branches of a run.
#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/branch_tree.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct BranchCommandOptions {
  std::string path;
  std::optional<std::string> made;
  std::vector<std::string> removed;
  bool with_later = false;
};

Result<int> list(const Store& store, const std::string& run, const CommonOptions& common) {
  BITSNAP_ASSIGN(const std::vector<Branch> branches, store.branches());
  if (common.json) {
    print_json({{"run", run}, {"branches", branches}});
  } else if (branches.empty()) {
    print_result(fmt::format("{}: no branches\n", printable(run)));
  } else {
    print_result(render_branches(branches, "", common.table_width()));
  }
  return kExitOk;
}

Result<int> make(const Store& store, const RunPath& path, const BranchCommandOptions& options,
                 const CommonOptions& common) {
  std::optional<std::uint64_t> step = path.step;
  if (!step) {
    BITSNAP_ASSIGN(step, newest_step(store, path.run));
  }
  ProgressBar bar(run_name(path.run), !common.quiet);
  BranchOptions making{.with_later = options.with_later};
  making.run = bar.run(common);
  const Result<Branch> made = store.make_branch(*options.made, *step, making);
  bar.clear();
  if (!made) return tl::unexpected(made.error());
  if (common.json) {
    Json document = *made;
    document["copied_bytes"] = made->copied_bytes;
    print_json({{"run", path.run}, {"made", std::move(document)}});
    return kExitOk;
  }
  if (common.quiet) return kExitOk;
  print_result(fmt::format("branch {}: {}, {}, of which {} are shared; `{}` names it\n", printable(made->name),
                           made->checkpoints == 1 ? fmt::format("step {}", *step)
                                                  : fmt::format("steps {} to {}", *step, made->newest.value_or(*step)),
                           format_size(made->stored_bytes), format_size(made->stored_bytes - made->own_bytes),
                           printable(run_of_branch(path.run) + ":" + made->name)));
  if (made->copied_bytes > 0) {
    print_note(fmt::format("{}: the file system has no hard links; {} were copied\n", printable(path.run),
                           format_size(made->copied_bytes)));
  }
  return kExitOk;
}

// All branches, or none if one of them does not exist.
Result<void> remove(const Store& store, const std::string& run, const std::vector<std::string>& names) {
  BITSNAP_ASSIGN(const std::vector<Branch> branches, store.branches());
  std::set<std::string> removed(names.begin(), names.end());
  const auto is_missing = [&](const std::string& name) {
    return std::ranges::find(branches, name, &Branch::name) == branches.end();
  };
  const auto missing = std::ranges::find_if(removed, is_missing);
  if (missing != removed.end()) return store.remove_branch(*missing);  // the error names the others
  for (const std::string& name : removed) {
    if (auto done = store.remove_branch(name); !done) {
      return tl::unexpected(
          explain_busy(run_of_branch(run) + ":" + name, std::move(done).error(), "remove the branch after that"));
    }
  }
  return {};
}

Result<int> branch(const BranchCommandOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(const RunPath path, parse_run_path(options.path));
  if (path.step && !options.made) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: names one checkpoint; give the new branch a name: bitsnap branch {} NAME",
                            options.path, options.path));
  }
  BITSNAP_ASSIGN(const auto store, open_to_read(path.run));
  if (options.made) return make(*store, path, options, common);
  BITSNAP_TRY(remove(*store, path.run, options.removed));
  if (!options.removed.empty() && common.quiet && !common.json) return kExitOk;
  return list(*store, path.run, common);
}

}  // namespace

Command add_branch(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<BranchCommandOptions>(program, kRunsGroup, "branch",
                                                          "List the branches of a run, or make and remove them");
  add_argument(*app, "RUN[@STEP]", options->path,
               "The run, or the checkpoint with which the new branch begins; the newest by default");
  CLI::Option* made = app->add_option("NAME", options->made, "Make a branch of this name")->type_name("");
  app->add_flag("--later", options->with_later, "The new branch gets all later checkpoints, too")->needs(made);
  app->add_option("--remove", options->removed, "Remove this branch with all its checkpoints")
      ->type_name("NAME")
      ->expected(1)
      ->take_all()
      ->excludes(made);
  app->footer(
      "A branch is a second line of a run from one of its steps. Its files are shared with the run as far as they are "
      "the same, and neither notices what is removed from the other. In all commands, RUN:NAME names the branch, and "
      "RUN:NAME@500 its step 500. `log` draws all branches as a tree.");
  return {app, [options, &common] { return branch(*options, common); }};
}

}  // namespace bitsnap::cli
