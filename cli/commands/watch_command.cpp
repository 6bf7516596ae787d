// `bitsnap watch`: takes the checkpoints of a training into a run, each once it is complete.
//
// One thread; the run is opened for each checkpoint and closed again. All that lasts is in the run, so a killed watcher
// loses nothing.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/text.hpp>

#include "cli/command.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/references.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/operating_system.hpp"
#include "cli/watch/checkpoint_saving.hpp"
#include "cli/watch/completeness.hpp"
#include "cli/watch/raw_comparison.hpp"
#include "cli/watch/raw_deletion.hpp"
#include "cli/watch/raw_events.hpp"
#include "cli/watch/raw_inputs.hpp"
#include "cli/watch/raw_tree.hpp"
#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kDefaultKeepRaw = 1;
// A checkpoint that cannot be saved holds back later ones until it has failed this often. The run then takes later
// ones, and the failing one can no longer be added.
constexpr unsigned kBlockingFailures = 3;
constexpr std::chrono::milliseconds kLongestRetry(300'000);
constexpr std::chrono::milliseconds kSleepSlice(50);  // the longest that an interrupt goes unseen

bool will_pass(ErrorKind kind) {
  return kind == ErrorKind::busy || kind == ErrorKind::io || kind == ErrorKind::resource_exhausted;
}

bool is_interrupted(const Error& error) { return error.kind() == ErrorKind::cancelled && interrupt_signal() != 0; }

Result<void> sleep_for(std::chrono::milliseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (true) {
    if (interrupt_signal() != 0) return fail(ErrorKind::cancelled, "interrupted");
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0) return {};
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(left, kSleepSlice));
  }
}

struct WatchOptions {
  RunSaveOptions save;
  std::string directory;
  RawKeeping keeping;
  std::chrono::milliseconds settle{30'000};
  std::chrono::milliseconds poll{5'000};
  bool once = false;
};

class RunWatcher {
 public:
  RunWatcher(const WatchOptions& options, const CommonOptions& common)
      : options_(options), common_(common), events_(options.save.run, common) {}

  // Ends after an interrupt, with cancelled; with --once after everything that is complete; and after errors that will
  // not pass.
  Result<void> run() {
    BITSNAP_TRY(check_many(options_.save));
    BITSNAP_TRY(check_whole_run(options_.save.run));
    BITSNAP_TRY(check_outside(options_.save.run, options_.directory));
    BITSNAP_TRY(check_in_no_run(options_.directory));
    std::error_code error;
    if (!std::filesystem::is_directory(options_.directory, error)) {
      return fail(ErrorKind::not_found, fmt::format("{}: there is no such directory", options_.directory));
    }
    // Its children may be checkpoints nevertheless.
    BITSNAP_ASSIGN(const auto reference, read_reference(options_.directory));
    if (reference) skip_once(options_.directory, std::nullopt, skip_reason(describe(*reference), reference));
    lower_priority();
    std::optional<Clock::time_point> first_poll;
    while (true) {
      // What has not changed since the first poll is complete in a poll that begins after this time.
      const bool is_last = first_poll && Clock::now() - *first_poll >= options_.settle;
      BITSNAP_TRY(poll());
      if (!first_poll) first_poll = Clock::now();
      if (options_.once && (is_last || !is_waiting_)) return {};
      const std::chrono::milliseconds least(10);
      BITSNAP_TRY(sleep_for(options_.once ? std::min(options_.poll, std::max(least, options_.settle / 8))
                                          : std::max(least, options_.poll)));
    }
  }

 private:
  enum class Phase {
    observed,  // until it is complete
    in_run,    // the run has its step
    refused,   // it will not be saved unless it changes
  };

  struct Watched {
    Phase phase = Phase::observed;
    std::vector<RawEntry> tree;        // while it is observed
    Clock::time_point since;           // the tree has been the same since then
    std::optional<FileFacts> settled;  // of the checkpoint itself when it left the first phase
    std::optional<std::string> held;   // why it is none to save: a run holds it
    bool was_saved = false;            // by this process
    bool was_judged_for_deletion = false;
    unsigned failures = 0;
    Clock::time_point retry_at;
  };

  Result<void> poll() {
    is_blocked_ = false;
    is_waiting_ = false;
    const auto found = list_checkpoints(options_.directory);
    auto steps = found ? steps_of_run(options_.save.run) : tl::unexpected(found.error());
    if (!steps) {
      if (options_.once || (found && !will_pass(steps.error().kind()))) return tl::unexpected(std::move(steps).error());
      warn_once(options_.directory, std::nullopt, steps.error());
      return {};
    }
    steps_ = std::move(*steps);
    // Of what is gone, only what tells a later checkpoint of the same name from it is kept.
    for (auto& [path, watched] : watched_) {
      const auto is_there = [&path](const RawCheckpoint& each) { return each.path == path; };
      if (std::ranges::none_of(found->checkpoints, is_there)) watched.tree.clear();
    }
    const TrainingMarkers markers = read_markers(options_.directory, found->checkpoints);
    for (const RawSkipped& skipped : found->skipped) skip_once(skipped.path, skipped.step, skipped.reason);
    refuse_duplicates(found->checkpoints);
    for (const RawCheckpoint& checkpoint : found->checkpoints) {
      if (interrupt_signal() != 0) return fail(ErrorKind::cancelled, "interrupted");
      BITSNAP_TRY(visit(checkpoint, markers));
    }
    return options_.keeping.delete_after_verify ? delete_old(*found) : Result<void>();
  }

  bool has(std::uint64_t step) const { return std::ranges::binary_search(steps_, step); }

  [[nodiscard]] bool is_above_run(std::uint64_t step) const { return steps_.empty() || step > steps_.back(); }

  void refuse_duplicates(const std::vector<RawCheckpoint>& found) {
    for (std::size_t i = 1; i < found.size(); ++i) {
      if (found[i].step != found[i - 1].step) continue;
      note_once(found[i].path, found[i].step,
                fmt::format("has the same step as {}; neither is saved", printable(found[i - 1].path)));
      for (const RawCheckpoint* each : {&found[i - 1], &found[i]}) {
        const auto facts = read_facts(each->path);
        if (!facts || !*facts) continue;
        watched_[each->path].settled = **facts;
        watched_[each->path].phase = Phase::refused;
      }
    }
  }

  // Whether nothing is to be done about it because it has not changed since it was saved or refused.
  static bool is_settled(const RawCheckpoint& checkpoint, const Watched& watched) {
    if (watched.phase == Phase::observed) return false;
    const auto facts = read_facts(checkpoint.path);
    return facts && *facts == watched.settled;
  }

  // Updates the tree; false if the checkpoint cannot be read now.
  bool observe(const RawCheckpoint& checkpoint, Watched& watched) {
    auto tree = list_raw(checkpoint.path);
    if (!tree) {
      watched.tree.clear();
      if (tree.error().kind() != ErrorKind::not_found) warn_once(checkpoint.path, checkpoint.step, tree.error());
      return false;
    }
    if (*tree != watched.tree) {
      auto held = find_reason_to_skip(checkpoint.path);
      if (!held) {
        watched.tree.clear();
        warn_once(checkpoint.path, checkpoint.step, held.error());
        return false;
      }
      watched.held = std::move(*held);
      watched.tree = std::move(*tree);
      watched.since = Clock::now();
      watched.phase = Phase::observed;
      watched.was_judged_for_deletion = false;
      watched.failures = 0;
      watched.retry_at = {};
    }
    return true;
  }

  static void settle(Watched& watched, Phase phase) {
    watched.phase = phase;
    watched.settled = watched.tree.front().facts;
    watched.tree.clear();
  }

  Result<void> visit(const RawCheckpoint& checkpoint, const TrainingMarkers& markers) {
    Watched& watched = watched_[checkpoint.path];
    if (is_settled(checkpoint, watched)) return {};
    const auto now = Clock::now();
    if (!observe(checkpoint, watched)) return {};
    if (watched.held) {
      skip_once(checkpoint.path, checkpoint.step, *watched.held);
      settle(watched, Phase::refused);
      return {};
    }
    const auto judgement =
        judge(markers, checkpoint, watched.tree,
              std::max<Clock::duration>(now - watched.since, Clock::duration::zero()), options_.settle);
    const bool is_new = is_above_run(checkpoint.step);
    if (judgement.state == RawState::unfinished) {
      note_once(checkpoint.path, checkpoint.step, fmt::format("is not complete: {}", printable(judgement.reason)));
      return {};
    }
    if (judgement.state == RawState::changing) {
      is_waiting_ = true;
      is_blocked_ = is_blocked_ || is_new;
      return {};
    }
    if (!is_new) return settle_old_step(checkpoint, watched);
    if (is_blocked_ || now < watched.retry_at) {
      is_waiting_ = true;
      is_blocked_ = is_blocked_ || watched.failures <= kBlockingFailures;
      return {};
    }
    if (const std::string cut = find_cut_file(checkpoint.path, watched.tree); !cut.empty()) {
      note_once(checkpoint.path, checkpoint.step, fmt::format("is not complete: {}", printable(cut)));
      return {};
    }
    return take(checkpoint, watched);
  }

  // A step that the run has is taken for the same checkpoint, unless this process saw it change.
  Result<void> settle_old_step(const RawCheckpoint& checkpoint, Watched& watched) {
    const std::string name = checkpoint_name(options_.save.run, checkpoint.step);
    if (!has(checkpoint.step)) {
      note_once(checkpoint.path, checkpoint.step,
                fmt::format("its step is below {}, the newest of {}; it is not saved", steps_.back(),
                            printable(options_.save.run)));
      settle(watched, Phase::refused);
      return {};
    }
    if (watched.was_saved && watched.settled != watched.tree.front().facts) {
      BITSNAP_ASSIGN(const auto store, open_to_read(options_.save.run));
      const auto snapshot = store->snapshot(checkpoint.step);
      const auto difference =
          snapshot ? compare_raw(checkpoint.path, watched.tree, *snapshot, RawMatch::content, common_.threads)
                   : tl::unexpected(snapshot.error());
      if (!difference && is_interrupted(difference.error())) return tl::unexpected(difference.error());
      if (!difference) warn_once(checkpoint.path, checkpoint.step, difference.error());
      if (difference && *difference) {
        note_once(checkpoint.path, checkpoint.step,
                  fmt::format("changed after it was saved; {} holds what it was before", printable(name)));
      }
    }
    settle(watched, Phase::in_run);
    return {};
  }

  Result<void> take(const RawCheckpoint& checkpoint, Watched& watched) {
    if (const auto saved = save(checkpoint, watched); !saved) return handle_failure(checkpoint, watched, saved.error());
    steps_.push_back(checkpoint.step);
    watched.was_saved = true;
    settle(watched, Phase::in_run);
    return {};
  }

  Result<void> save(const RawCheckpoint& checkpoint, const Watched& watched) {
    BITSNAP_ASSIGN(auto state, open_raw_input(checkpoint.path, "watch", checkpoint.step));
    BITSNAP_TRY(prepare_input(state, options_.save, checkpoint.step, common_));
    auto store = open_to_save(options_.save);
    if (!store) {
      if (!will_pass(store.error().kind())) fatal_ = store.error();
      return tl::unexpected(std::move(store).error());
    }
    // What was judged to be complete is what was saved.
    const auto check = [&]() -> Result<void> {
      BITSNAP_ASSIGN(const auto tree, list_raw(checkpoint.path));
      if (tree == watched.tree) return {};
      return fail(ErrorKind::invalid_argument, fmt::format("{}: changed while it was being saved", checkpoint.path));
    };
    BITSNAP_ASSIGN(const auto saved, save_input(**store, state, checkpoint.path, checkpoint.step, common_, check));
    warn_of_base(options_.save.run, saved, common_);
    if (saved.checkpoint.prune_error) events_.warning(checkpoint.path, checkpoint.step, *saved.checkpoint.prune_error);
    // The step is saved whether or not its report can be made.
    static_cast<void>(events_.saved(**store, saved));
    return {};
  }

  Result<void> handle_failure(const RawCheckpoint& checkpoint, Watched& watched, const Error& error) {
    if (fatal_) return tl::unexpected(*fatal_);
    if (is_interrupted(error)) return tl::unexpected(error);
    const auto tree = list_raw(checkpoint.path);
    if (!tree && tree.error().kind() == ErrorKind::not_found) {
      events_.note(checkpoint.path, checkpoint.step, "vanished while it was being saved; it is skipped");
      watched.tree.clear();
      return {};
    }
    is_waiting_ = true;
    if (tree && *tree != watched.tree) {
      events_.note(checkpoint.path, checkpoint.step,
                   "changed while it was being saved; it is saved once it is complete");
      watched.tree = *tree;
      watched.since = Clock::now();
      is_blocked_ = true;
      return {};
    }
    if (options_.once) return tl::unexpected(error);
    warn_once(checkpoint.path, checkpoint.step, error);
    if (!will_pass(error.kind())) {
      settle(watched, Phase::refused);
      return {};
    }
    ++watched.failures;
    const auto doubled = options_.poll * (std::int64_t{1} << std::min(watched.failures, 10U));
    watched.retry_at = Clock::now() + std::min<std::chrono::milliseconds>(doubled, kLongestRetry);
    is_blocked_ = is_blocked_ || watched.failures <= kBlockingFailures;
    return {};
  }

  Result<void> delete_old(const RawInputs& found) {
    for (const RawCheckpoint& left : found.deleting) {
      if (has(left.step)) {
        BITSNAP_TRY(delete_one(left, true, left_judged_[left.path]));
      } else {
        note_once(left.path, left.step, "is left of a deletion and stays, because the run does not have its step");
      }
    }
    std::vector<const RawCheckpoint*> in_run;
    for (const RawCheckpoint& checkpoint : found.checkpoints) {
      if (watched_[checkpoint.path].phase == Phase::in_run) in_run.push_back(&checkpoint);
    }
    const std::size_t kept = options_.keeping.keep_raw.value_or(kDefaultKeepRaw);
    for (std::size_t i = 0; i + kept < in_run.size(); ++i) {
      BITSNAP_TRY(delete_one(*in_run[i], false, watched_[in_run[i]->path].was_judged_for_deletion));
    }
    return {};
  }

  // A verdict holds until the checkpoint changes. Where another process writes to the run, the next poll tries again.
  Result<void> delete_one(const RawCheckpoint& raw, bool is_left, bool& is_judged) {
    if (is_judged) return {};
    if (interrupt_signal() != 0) return fail(ErrorKind::cancelled, "interrupted");
    auto store = open_to_save(options_.save);
    if (!store && is_interrupted(store.error())) return tl::unexpected(store.error());
    if (!store) {
      warn_once(raw.path, raw.step, store.error());
      return {};
    }
    is_judged = true;
    const auto deletion = is_left ? finish_deletion(**store, raw.path, raw.step, common_.threads)
                                  : delete_verified(**store, raw.path, raw.step, common_.threads);
    if (deletion) {
      if (deletion->is_deleted) is_judged = false;
      events_.deletion(raw.path, raw.step, *deletion);
      return {};
    }
    if (is_interrupted(deletion.error()) || options_.once) return tl::unexpected(deletion.error());
    warn_once(raw.path, raw.step, deletion.error());
    return {};
  }

  void note_once(const std::string& path, std::optional<std::uint64_t> step, const std::string& text) {
    if (noted_.insert(fmt::format("{}\n{}", path, text)).second) events_.note(path, step, text);
  }

  void skip_once(const std::string& path, std::optional<std::uint64_t> step, const std::string& reason) {
    if (noted_.insert(fmt::format("{}\n{}", path, reason)).second) events_.skipped(path, step, reason);
  }

  void warn_once(const std::string& path, std::optional<std::uint64_t> step, const Error& error) {
    if (noted_.insert(fmt::format("{}\n{}", path, error.message())).second) events_.warning(path, step, error);
  }

  const WatchOptions& options_;
  const CommonOptions& common_;
  RawEvents events_;
  std::map<std::string, Watched> watched_;   // by path
  std::set<std::string> noted_;              // what was printed and is not printed again
  std::map<std::string, bool> left_judged_;  // leftovers of deletions
  std::vector<std::uint64_t> steps_;         // of the run
  std::optional<Error> fatal_;               // of the run, if it will not pass
  // Of one poll: a lower step is about to be complete, and the run takes steps in ascending order only.
  bool is_blocked_ = false;
  bool is_waiting_ = false;
};

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
