// `bitsnap ingest`: saves a history of checkpoints in the order of their steps, and with --delete-after-verify deletes
// each of them once its copy is proved to be equal. A call continues where an earlier one stopped.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/operating_system.hpp"
#include "cli/retention_options.hpp"
#include "cli/text_format.hpp"
#include "cli/watch/checkpoint_saving.hpp"
#include "cli/watch/raw_comparison.hpp"
#include "cli/watch/raw_deletion.hpp"
#include "cli/watch/raw_events.hpp"
#include "cli/watch/raw_inputs.hpp"
#include "cli/watch/raw_tree.hpp"

namespace bitsnap::cli {

namespace {

struct IngestOptions {
  RunSaveOptions save;
  std::vector<std::string> inputs;
  RawKeeping keeping;
};

class Ingestion {
 public:
  Ingestion(const IngestOptions& options, const CommonOptions& common)
      : options_(options), common_(common), events_(options.save.run, common) {}

  Result<int> run() {
    BITSNAP_TRY(check_many(options_.save));
    BITSNAP_ASSIGN(inputs_, find_raw_inputs(options_.inputs));
    // An earlier call may have deleted all checkpoints of a directory.
    if (!options_.keeping.delete_after_verify) BITSNAP_TRY(check_none_empty(inputs_));
    for (const RawCheckpoint& input : inputs_.checkpoints) BITSNAP_TRY(check_outside(options_.save.run, input.path));
    BITSNAP_TRY(check_steps());
    BITSNAP_ASSIGN(store_, open_to_save(options_.save));
    // The run may have changed before it was locked.
    BITSNAP_TRY(check_steps());
    if (auto done = take_all(); !done) {
      if (!common_.quiet) {
        print_note(fmt::format("{} of {} in the run; the same command continues\n", format_count(taken_),
                               format_plural(inputs_.checkpoints.size(), "checkpoint")));
      }
      return tl::unexpected(std::move(done).error());
    }
    return kExitOk;
  }

 private:
  [[nodiscard]] bool has(std::uint64_t step) const { return std::ranges::binary_search(steps_, step); }

  // Of a step below the newest one: whether the --keep options remove it, as an earlier call may have done.
  [[nodiscard]] bool is_pruned(std::uint64_t step) const {
    const Retention& retention = options_.save.retention;
    const bool is_kept = retention.keep_every && step % *retention.keep_every == 0;
    return is_given(retention) && !is_kept && !steps_.empty() && step < steps_.back() && !has(step);
  }

  // Everything that is known to fail fails before anything is done.
  Result<void> check_steps() {
    BITSNAP_ASSIGN(steps_, store_ != nullptr ? store_->steps() : steps_of_run(options_.save.run));
    for (const RawCheckpoint& input : inputs_.checkpoints) {
      if (steps_.empty() || input.step > steps_.back() || has(input.step) || is_pruned(input.step)) continue;
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: step {} is below step {}, the newest of {}, and can no longer be added", input.path,
                              input.step, steps_.back(), options_.save.run));
    }
    for (const RawCheckpoint& input : inputs_.gone) {
      if (has(input.step) || is_pruned(input.step)) continue;
      return fail(ErrorKind::not_found,
                  fmt::format("{}: does not exist, and {} has no step {}", input.path, options_.save.run, input.step));
    }
    return {};
  }

  Result<void> take_all() {
    for (const RawCheckpoint& left : inputs_.deleting) BITSNAP_TRY(finish(left));
    for (const RawSkipped& skipped : inputs_.skipped) events_.skipped(skipped.path, skipped.step, skipped.reason);
    for (const RawCheckpoint& gone : inputs_.gone) {
      events_.skipped(gone.path, gone.step, "it is not there, and the run has its step");
    }
    const std::size_t count = inputs_.checkpoints.size();
    const std::size_t kept = std::min<std::size_t>(count, options_.keeping.keep_raw.value_or(0));
    for (std::size_t i = 0; i < count; ++i) {
      const RawCheckpoint& input = inputs_.checkpoints[i];
      if (interrupt_signal() != 0) return fail(ErrorKind::cancelled, "interrupted");
      if (is_pruned(input.step)) {
        events_.skipped(input.path, input.step, "the run has later steps, and the --keep options do not keep it");
        ++taken_;
        continue;
      }
      BITSNAP_TRY(has(input.step) ? skip_equal(input) : save(input));
      ++taken_;
      if (options_.keeping.delete_after_verify && i < count - kept) BITSNAP_TRY(remove(input));
    }
    return {};
  }

  Result<void> save(const RawCheckpoint& input) {
    BITSNAP_ASSIGN(auto state, open_raw_input(input.path, "ingest", input.step));
    BITSNAP_TRY(prepare_input(state, options_.save, input.step, common_));
    BITSNAP_ASSIGN(const auto saved, save_input(*store_, state, input.path, input.step, common_));
    warn_of_base(options_.save.run, saved, common_);
    if (saved.checkpoint.prune_error) return tl::unexpected(*saved.checkpoint.prune_error);
    return events_.saved(*store_, saved);
  }

  Result<void> skip_equal(const RawCheckpoint& input) {
    const std::string name = checkpoint_name(options_.save.run, input.step);
    BITSNAP_ASSIGN(const auto tree, list_raw(input.path));
    BITSNAP_ASSIGN(const auto snapshot, store_->snapshot(input.step));
    BITSNAP_ASSIGN(const auto difference, compare_raw(input.path, tree, snapshot, RawMatch::content, common_.threads));
    if (difference && difference->is_in_bytes && is_lossy(*snapshot)) {
      events_.skipped(input.path, input.step, fmt::format("{} was saved with loss", printable(name)));
    } else if (difference) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: {} holds something else: {}; `bitsnap rollback` removes steps", input.path, name,
                              difference->what));
    } else {
      events_.skipped(input.path, input.step, fmt::format("{} is equal", printable(name)));
    }
    return {};
  }

  Result<void> remove(const RawCheckpoint& input) {
    BITSNAP_ASSIGN(const auto deletion, delete_verified(*store_, input.path, input.step, common_.threads));
    events_.deletion(input.path, input.step, deletion);
    return {};
  }

  // Without --delete-after-verify, what an earlier call left stays.
  Result<void> finish(const RawCheckpoint& left) {
    if (!options_.keeping.delete_after_verify) return {};
    if (!has(left.step)) {
      events_.deletion(left.path, left.step, {.is_deleted = false, .reason = "the run does not have its step"});
      return {};
    }
    BITSNAP_ASSIGN(const auto deletion, finish_deletion(*store_, left.path, left.step, common_.threads));
    events_.deletion(left.path, left.step, deletion);
    return {};
  }

  const IngestOptions& options_;
  const CommonOptions& common_;
  RawEvents events_;
  RawInputs inputs_;
  std::vector<std::uint64_t> steps_;  // of the run before this call
  std::unique_ptr<Store> store_;
  std::size_t taken_ = 0;
};

}  // namespace

Command add_ingest(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<IngestOptions>(program, kRunsGroup, "ingest",
                                                   "Save a history of checkpoints in the order of their steps");
  add_argument(*app, "RUN", options->save.run, "The directory of the run; made if it is not there");
  add_argument(*app, "IN", options->inputs, "Checkpoints, or directories that contain checkpoints");
  add_raw_keeping_options(*app, options->keeping, "Do not delete the N newest checkpoints; default: 0");
  add_save_options(*app, options->save);
  app->footer(
      "Steps come from names: checkpoint-1000, iter_0001000, global_step1000, epoch=0-step=1000.ckpt, 1000. A "
      "directory without a step in its name is searched for such names. Steps that the run has are compared and "
      "skipped. The first failure ends the command; the same command continues. With --json, each checkpoint is one "
      "line of JSON. Options of coding hold as for `bitsnap add`.");
  return {app, [options, &common] { return Ingestion(*options, common).run(); }, true};
}

}  // namespace bitsnap::cli
