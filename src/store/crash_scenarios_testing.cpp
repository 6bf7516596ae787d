// The crash scenarios. Chains are short, so that a few steps include keyframes, links and references past keyframes.
#include "store/crash_scenarios_testing.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/try.hpp"
#include "store/crash_branches_testing.hpp"
#include "store/crash_repairs_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

StoreOptions writing(std::uint32_t max_depth) {
  StoreOptions options;
  options.access = StoreAccess::write;
  options.settings.max_depth = max_depth;
  return options;
}

StoreOptions shared(std::uint32_t max_depth) {
  StoreOptions options = writing(max_depth);
  options.access = StoreAccess::shared;
  return options;
}

Retention keep(std::optional<std::uint64_t> last, std::vector<std::uint64_t> steps = {}) {
  Retention retention;
  retention.keep_last = last;
  retention.keep = std::move(steps);
  return retention;
}

using Calls = CrashScenario::Calls;
using OnStore = std::function<Result<void>(Store&, Journal&)>;

// A step that a writer shows after opening is safe. A step that a prune had hidden may still come back until the next
// prune.
bool holds_more(const TestRun& run, const TestRun& than) {
  return std::ranges::includes(
      run, than, {}, [](const auto& entry) { return entry.first; }, [](const auto& entry) { return entry.first; });
}

Calls with_store(const StoreOptions& options, const OnStore& calls, bool was_pruned = false) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, options));
    BITSNAP_ASSIGN(const TestRun shown, shown_run(*store));
    if (!journal.open(shown, content_of(*store),
                      [&](const TestRun& run) { return was_pruned && holds_more(run, shown); })) {
      return fail(ErrorKind::internal, "shows steps that are not allowed");
    }
    return calls(*store, journal);
  };
}

OnStore saves(std::uint64_t first, std::uint64_t last, Destination destination = Destination::disk) {
  return [=](Store& store, Journal& journal) -> Result<void> {
    for (std::uint64_t step = first; step <= last; ++step) BITSNAP_TRY(save_step(store, journal, step, 0, destination));
    return {};
  };
}

OnStore prunes(const Retention& retention, Reencode reencode) {
  return [=](Store& store, Journal& journal) { return prune_steps(store, journal, retention, reencode); };
}

// Saves steps with the retention of the store, as Store::save() does.
OnStore retains(std::uint64_t first, std::uint64_t last, const Retention& retention) {
  return [=](Store& store, Journal& journal) -> Result<void> {
    for (std::uint64_t step = first; step <= last; ++step) {
      BITSNAP_TRY(save_step(store, journal, step));
      BITSNAP_TRY(prune_steps(store, journal, retention, Reencode::when_it_pays));
    }
    return {};
  };
}

OnStore removes(const std::vector<std::uint64_t>& steps, Reencode reencode) {
  return [=](Store& store, Journal& journal) { return remove_named(store, journal, steps, reencode); };
}

OnStore rolls_back(std::uint64_t step) {
  return [=](Store& store, Journal& journal) { return roll_back(store, journal, step); };
}

OnStore one_after_another(std::vector<OnStore> calls) {
  return [calls = std::move(calls)](Store& store, Journal& journal) -> Result<void> {
    for (const OnStore& call : calls) BITSNAP_TRY(call(store, journal));
    return {};
  };
}

Calls two_ranks(std::uint32_t max_depth, std::uint64_t first, std::uint64_t last,
                Destination destination = Destination::disk, std::uint64_t seed = 0) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, shared(max_depth)));
    BITSNAP_ASSIGN(const auto b, open_store(files, kTestRun, shared(max_depth)));
    for (std::uint64_t step = first; step <= last; ++step) {
      BITSNAP_TRY(save_two_shards(*a, *b, journal, step, seed, "a1", destination));
    }
    return {};
  };
}

// Saves the step after the newest.
Result<void> save_next(Store& store, Journal& journal) {
  return save_step(store, journal, journal.run().empty() ? 1 : journal.run().rbegin()->first + 1);
}

// Two ranks save the next step with a new attempt, whatever became of the previous one. What they see at first need not
// be safe; their save makes it safe.
Calls two_ranks_go_on(std::uint32_t max_depth, const Retention& retention) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, shared(max_depth)));
    BITSNAP_ASSIGN(const auto b, open_store(files, kTestRun, shared(max_depth)));
    BITSNAP_ASSIGN(const TestRun shown, shown_run(*a));
    if (!journal.open(shown, content_of(*a), [](const TestRun&) { return true; })) {
      return fail(ErrorKind::internal, "shows steps that are not allowed");
    }
    BITSNAP_TRY(save_two_shards(*a, *b, journal, shown.empty() ? 1 : shown.rbegin()->first + 1, 7, "a2"));
    return prune_steps(*b, journal, retention, Reencode::never);
  };
}

// Each rank saves its shard, and nobody commits.
Calls ranks_save_only(std::uint32_t max_depth, std::uint64_t step) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    const TestStep content{0, 2};
    for (const std::uint32_t shard : {1U, 0U}) {
      BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, shared(max_depth)));
      BITSNAP_ASSIGN(const TestRun shown, shown_run(*store));
      journal.open(shown, content_of(*store), [](const TestRun&) { return false; });
      BITSNAP_TRY(
          store->save_shard(step, {shard, 2, "a1"}, test_state(step, content.shard_seed(shard)).state(), {1, nullptr}));
    }
    return {};
  };
}

// Commits what the ranks have left, if all shards are there.
Calls commits(std::uint32_t max_depth, std::uint64_t step) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto store, open_store(files, kTestRun, shared(max_depth)));
    const Journal::Change add = [=](const TestRun& run) {
      TestRun after = run;
      after[step] = TestStep{0, 2};
      return after;
    };
    journal.begin([&](const TestRun& run) { return std::vector{add(run)}; });
    BITSNAP_ASSIGN(const auto committed, store->commit(step, 2, "a1"));
    if (committed) journal.confirm(add, true);
    return {};
  };
}

// One of several ranks prunes.
Calls rank_prunes(std::uint32_t max_depth, const Retention& retention) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, shared(max_depth)));
    BITSNAP_ASSIGN(const TestRun shown, shown_run(*a));
    if (!journal.open(shown, content_of(*a), [](const TestRun&) { return true; })) {
      return fail(ErrorKind::internal, "shows steps that are not allowed");
    }
    return prune_steps(*a, journal, retention, Reencode::never);
  };
}

// Two ranks with equal shards.
std::vector<CrashScenario> replica_scenarios() {
  const StoreOptions depth_2 = writing(2);
  const auto replicas = [](std::uint64_t first, std::uint64_t last, Destination destination) {
    return two_ranks(2, first, last, destination, kReplicaSeed);
  };
  std::vector<CrashScenario> scenarios;
  scenarios.push_back({"TwoRanksPublishReplicas", depth_2, replicas(1, 1, Destination::memory),
                       replicas(2, 3, Destination::memory), two_ranks_go_on(2, keep(1))});
  scenarios.push_back({"TwoRanksSaveReplicas", depth_2, replicas(1, 1, Destination::disk),
                       replicas(2, 2, Destination::disk), two_ranks_go_on(2, keep(1))});
  scenarios.push_back({"PruningReplicas", depth_2, replicas(1, 4, Destination::memory),
                       with_store(depth_2, prunes(keep({}, {2}), Reencode::always)),
                       with_store(depth_2, prunes(keep(2), Reencode::never), true)});
  return scenarios;
}

OnStore saves_as(std::uint64_t step, const std::vector<std::string>& labels, std::uint64_t seed = 0) {
  return [=](Store& store, Journal& journal) {
    return save_step(store, journal, step, seed, Destination::disk, {.labels = labels});
  };
}

OnStore labels(std::uint64_t step, const std::string& label) {
  return [=](Store& store, Journal& journal) { return label_step(store, journal, step, label); };
}

OnStore unlabels(const std::string& label) {
  return [=](Store& store, Journal& journal) { return remove_label(store, journal, label); };
}

Calls two_ranks_label(std::uint64_t first, std::uint64_t last) {
  return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
    BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, shared(2)));
    BITSNAP_ASSIGN(const auto b, open_store(files, kTestRun, shared(2)));
    for (std::uint64_t step = first; step <= last; ++step) {
      BITSNAP_TRY(save_two_shards(*a, *b, journal, step, 0, "a1", Destination::disk, {.labels = {"best"}}));
    }
    return label_step(*a, journal, first, "first");
  };
}

// Moves labels with a save, between checkpoints, and away with their checkpoints.
std::vector<CrashScenario> label_scenarios() {
  const StoreOptions depth_2 = writing(2);
  const OnStore prune_all = prunes(keep(1), Reencode::always);
  const OnStore save_best_next = [](Store& store, Journal& journal) -> Result<void> {
    const std::uint64_t next = journal.run().empty() ? 1 : journal.run().rbegin()->first + 1;
    return save_step(store, journal, next, 0, Destination::disk, {.labels = {"best"}});
  };
  Retention labelled = keep(1);
  labelled.keep_labelled = true;
  std::vector<CrashScenario> scenarios;
  scenarios.push_back({"SavingWithLabels", depth_2,
                       with_store(depth_2, one_after_another({saves_as(1, {"best", "first"}), saves_as(2, {"last"})})),
                       with_store(depth_2, one_after_another({saves_as(3, {"best", "last"}), saves(4, 4)})),
                       with_store(depth_2, one_after_another({save_best_next, prune_all}))});
  scenarios.push_back({"MovingLabels", depth_2,
                       with_store(depth_2, one_after_another({saves(1, 3), labels(3, "best"), labels(2, "old")})),
                       with_store(depth_2, one_after_another({labels(1, "best"), unlabels("old"), labels(2, "best")})),
                       with_store(depth_2, one_after_another({labels(3, "best"), rolls_back(1)}))});
  scenarios.push_back({"LabellingAgain", depth_2, with_store(depth_2, saves(1, 2)),
                       with_store(depth_2, labels(1, "best")), with_store(depth_2, labels(1, "best"))});
  scenarios.push_back(
      {"PruningLabelledSteps", depth_2,
       with_store(depth_2, one_after_another({saves_as(1, {"best"}), saves(2, 3), saves_as(4, {"best"}), saves(5, 5)})),
       with_store(depth_2, prunes(keep({}, {1, 2}), Reencode::never)), with_store(depth_2, prune_all, true)});
  scenarios.push_back(
      {"PruningAroundLabels", depth_2,
       with_store(depth_2, one_after_another({saves_as(1, {"best"}), saves(2, 3), saves_as(4, {"last"}), saves(5, 6)})),
       with_store(depth_2, prunes(labelled, Reencode::never)),
       with_store(depth_2, prunes(labelled, Reencode::always), true)});
  scenarios.push_back(
      {"RollingBackLabelledSteps", depth_2,
       with_store(depth_2, one_after_another({saves_as(1, {"best"}), saves(2, 2), saves_as(3, {"best", "last"})})),
       with_store(depth_2, one_after_another({rolls_back(1), saves_as(2, {}, 5), saves_as(3, {}, 5)})),
       with_store(depth_2, one_after_another({save_best_next, prune_all}))});
  scenarios.push_back(
      {"TwoRanksSaveWithLabels", depth_2, two_ranks_label(1, 1), two_ranks_label(2, 3), two_ranks_go_on(2, keep(1))});
  return scenarios;
}

CommitOptions with_files(const std::string& content, bool replace = false) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(content));
  return {.replace = replace, .files = {{"config.json", {bytes.begin(), bytes.end()}}, {"empty", {}}}};
}

// Saves with files of the caller, replaces and removes them.
std::vector<CrashScenario> file_scenarios() {
  const StoreOptions depth_2 = writing(2);
  const auto saves_files = [](std::uint64_t step, const std::string& content, bool replace = false,
                              Destination destination = Destination::disk) {
    return [=](Store& store, Journal& journal) {
      return save_step(store, journal, step, replace ? 5 : 0, destination, with_files(content, replace));
    };
  };
  const auto ranks_save_files = [](std::uint64_t step, const std::string& attempt, const CommitOptions& commit) {
    return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
      BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, shared(2)));
      BITSNAP_ASSIGN(const auto b, open_store(files, kTestRun, shared(2)));
      return save_two_shards(*a, *b, journal, step, step, attempt, Destination::disk, commit);
    };
  };
  CommitOptions both = with_files("both");
  both.metadata = {{"epoch", "3"}};
  std::vector<CrashScenario> scenarios;
  scenarios.push_back({"SavingWithFiles", depth_2, with_store(depth_2, saves_files(1, "first")),
                       with_store(depth_2, one_after_another({saves_files(2, "second"),
                                                              saves_files(3, "third", false, Destination::memory)})),
                       with_store(depth_2, one_after_another({save_next, prunes(keep(1), Reencode::always)}))});
  scenarios.push_back(
      {"ReplacingFiles", depth_2, with_store(depth_2, one_after_another({saves(1, 1), saves_files(2, "second")})),
       with_store(depth_2, one_after_another({saves_files(2, "other", true), saves_files(2, "other", true)})),
       with_store(depth_2, one_after_another({save_next, prunes(keep(1), Reencode::never)}))});
  scenarios.push_back({"TwoRanksCommitFiles", depth_2, two_ranks(2, 1, 1), ranks_save_files(2, "a1", both),
                       two_ranks_go_on(2, keep(1))});
  return scenarios;
}

// Saves the newest step again as another attempt.
std::vector<CrashScenario> replacing_scenarios() {
  const StoreOptions depth_2 = writing(2);
  StoreOptions in_memory = depth_2;
  in_memory.keep_base_bytes = 1 << 20;
  const auto replaces = [](std::uint64_t step, std::uint64_t seed, Destination destination = Destination::disk) {
    return [=](Store& store, Journal& journal) {
      return save_step(store, journal, step, seed, destination, {.labels = {"last"}, .replace = true});
    };
  };
  const auto ranks_replace = [](std::uint64_t seed, const std::string& attempt) {
    return [=](os::FileSystem& files, Journal& journal) -> Result<void> {
      BITSNAP_ASSIGN(const auto a, open_store(files, kTestRun, shared(2)));
      BITSNAP_ASSIGN(const auto b, open_store(files, kTestRun, shared(2)));
      BITSNAP_ASSIGN(const TestRun shown, shown_run(*a));
      if (!journal.open(shown, content_of(*a), [](const TestRun&) { return true; })) {
        return fail(ErrorKind::internal, "shows steps that are not allowed");
      }
      return save_two_shards(*a, *b, journal, 2, seed, attempt, Destination::disk, {.replace = true});
    };
  };
  std::vector<CrashScenario> scenarios;
  scenarios.push_back(
      {"Replacing", depth_2, with_store(depth_2, one_after_another({saves(1, 2), saves_as(3, {"best"})})),
       with_store(depth_2, replaces(3, 5)),
       with_store(depth_2, one_after_another({replaces(3, 6), save_next, prunes(keep(2), Reencode::never)}))});
  scenarios.push_back(
      {"ReplacingTheOnlyStep", in_memory, with_store(in_memory, saves(1, 1)),
       with_store(in_memory, one_after_another({replaces(1, 5), replaces(1, 6, Destination::memory), saves(2, 2)})),
       with_store(in_memory, one_after_another({save_next, prunes(keep(1), Reencode::always)}))});
  scenarios.push_back({"TwoRanksReplace", depth_2, two_ranks(2, 1, 2), ranks_replace(5, "a5"), ranks_replace(6, "a6")});
  scenarios.push_back(
      {"TwoRanksReplaceAndOnePrunes", depth_2, two_ranks(2, 1, 2), ranks_replace(5, "a5"), rank_prunes(2, keep(1))});
  return scenarios;
}

// Removes steps by name, also the newest and those that others need.
std::vector<CrashScenario> removing_scenarios() {
  const StoreOptions depth_2 = writing(2);
  std::vector<CrashScenario> scenarios;
  scenarios.push_back({"RemovingTheNewest", depth_2, with_store(depth_2, saves(1, 6)),
                       with_store(depth_2, removes({2, 4, 6}, Reencode::never)),
                       with_store(depth_2, one_after_another({save_next, prunes(keep(2), Reencode::never)}), true)});
  scenarios.push_back(
      {"RemovingWhatOthersNeed", depth_2,
       with_store(depth_2, one_after_another({saves(1, 4), prunes(keep({}, {2, 3}), Reencode::never), saves(5, 6)})),
       with_store(depth_2, removes({3, 5, 6}, Reencode::always)),
       with_store(depth_2, prunes(keep(1), Reencode::always), true)});
  return scenarios;
}

// With these states, two of three checkpoints are coded against the later one.
std::vector<CrashScenario> retaining_scenarios() {
  StoreOptions three = writing(3);
  three.retention = keep(3);
  three.prunes = false;  // the scenarios do
  const Calls six = with_store(three, retains(1, 6, keep(3)));
  const Calls prune_all = with_store(three, prunes(keep(1), Reencode::when_it_pays), true);
  std::vector<CrashScenario> scenarios;
  scenarios.push_back({"SavingWithARetention", three, six, with_store(three, retains(7, 9, keep(3))), prune_all});
  scenarios.push_back({"RollingBackALaterBase", three, six, with_store(three, rolls_back(5)), prune_all});
  scenarios.push_back(
      {"RemovingALaterBase", three, six, with_store(three, removes({6}, Reencode::when_it_pays)), prune_all});
  return scenarios;
}

std::vector<CrashScenario> make_scenarios() {
  const Calls nothing = [](os::FileSystem&, Journal&) -> Result<void> { return {}; };
  const auto going_on = [](const StoreOptions& options, OnStore calls) {
    return with_store(options, one_after_another({save_next, std::move(calls)}));
  };
  // Retires and removes steps, and meets shards that ranks left earlier.
  const OnStore prune_all = prunes(keep(1), Reencode::always);
  const OnStore prune_some = prunes(keep(2), Reencode::never);
  const StoreOptions depth_3 = writing(3);
  const StoreOptions depth_1 = writing(1);
  const StoreOptions depth_2 = writing(2);
  StoreOptions in_memory = depth_2;
  in_memory.keep_base_bytes = 1 << 20;
  StoreOptions on_keyframes = depth_3;
  on_keyframes.settings.base = BaseRule::keyframe;

  std::vector<CrashScenario> scenarios;
  scenarios.push_back(
      {"CreatingAndTheFirstSave", depth_3, nothing, with_store(depth_3, saves(1, 1)), going_on(depth_3, prune_all)});
  scenarios.push_back({"SavingADelta", depth_3, with_store(depth_3, saves(1, 2)), with_store(depth_3, saves(3, 3)),
                       going_on(depth_3, prune_some)});
  scenarios.push_back({"SavingAKeyframe", depth_1, with_store(depth_1, saves(1, 2)), with_store(depth_1, saves(3, 3)),
                       going_on(depth_1, prune_all)});
  scenarios.push_back({"SavingOntoTheKeyframe", on_keyframes, with_store(on_keyframes, saves(1, 2)),
                       with_store(on_keyframes, saves(3, 3)), going_on(on_keyframes, prune_some)});
  scenarios.push_back(
      {"SavingFromMemory", in_memory, nothing, with_store(in_memory, saves(1, 4)), going_on(in_memory, prune_some)});
  scenarios.push_back({"PublishingABlob", depth_2, nothing, with_store(depth_2, saves(1, 4, Destination::memory)),
                       going_on(depth_2, prune_some)});
  scenarios.push_back({"TwoRanksPublishBlobs", depth_2, two_ranks(2, 1, 1), two_ranks(2, 2, 3, Destination::memory),
                       two_ranks_go_on(2, keep(1))});
  scenarios.push_back({"TwoRanksCreate", depth_3, nothing, two_ranks(3, 1, 1), two_ranks_go_on(3, keep(1))});
  scenarios.push_back({"TwoRanksSave", depth_2, two_ranks(2, 1, 1), two_ranks(2, 2, 2), two_ranks_go_on(2, keep(1))});
  scenarios.push_back(
      {"ARankDiesAndAnotherCommits", depth_2, two_ranks(2, 1, 1), ranks_save_only(2, 2), commits(2, 2)});
  scenarios.push_back({"ARankDiesAndAnotherCommitsTheFirst", depth_2, nothing, ranks_save_only(2, 1), commits(2, 1)});
  scenarios.push_back({"ARankAloneSaves", depth_2, with_store(shared(2), saves(1, 2)),
                       with_store(shared(2), saves(3, 3)), rank_prunes(2, keep(1))});
  scenarios.push_back(
      {"TwoRanksSaveAndOnePrunes", depth_2, two_ranks(2, 1, 2), two_ranks(2, 3, 3), rank_prunes(2, keep(1))});
  scenarios.push_back(
      {"TwoRanksSaveAndOneGoesOn", depth_2, two_ranks(2, 1, 1), two_ranks(2, 2, 3), going_on(depth_2, prune_all)});
  scenarios.push_back({"PruningTheOldest", depth_2, with_store(depth_2, saves(1, 6)),
                       with_store(depth_2, prunes(keep(2), Reencode::never)), with_store(depth_2, prune_some, true)});
  scenarios.push_back({"PruningRetiresNeededSteps", depth_2, with_store(depth_2, saves(1, 6)),
                       with_store(depth_2, prunes(keep({}, {3}), Reencode::never)),
                       with_store(depth_2, prune_all, true)});
  scenarios.push_back({"PruningRewritesDependants", depth_2, with_store(depth_2, saves(1, 6)),
                       with_store(depth_2, prunes(keep({}, {3, 5}), Reencode::always)),
                       with_store(depth_2, prunes(keep({}, {3, 5}), Reencode::always), true)});
  scenarios.push_back(
      {"PruningTwice", depth_2,
       with_store(depth_2, one_after_another({saves(1, 4), prunes(keep(2), Reencode::never), saves(5, 7)})),
       with_store(depth_2, prunes(keep(2), Reencode::when_it_pays)),
       with_store(depth_2, prunes(keep(1), Reencode::when_it_pays), true)});
  scenarios.push_back({"PruningShards", depth_2, two_ranks(2, 1, 4),
                       with_store(depth_2, prunes(keep({}, {2}), Reencode::always)),
                       with_store(depth_2, prune_some, true)});
  scenarios.push_back(
      {"RollingBack", depth_2,
       with_store(depth_2, one_after_another({saves(1, 6), prunes(keep({}, {1, 2, 5}), Reencode::never)})),
       with_store(depth_2, rolls_back(2)), going_on(depth_2, prune_all)});
  scenarios.push_back({"RollingBackAndSavingOthers", depth_2, with_store(depth_2, saves(1, 4)),
                       with_store(depth_2, one_after_another({rolls_back(2),
                                                              [](Store& store, Journal& journal) {
                                                                return save_step(store, journal, 3, 5);
                                                              }})),
                       going_on(depth_2, prune_some)});
  std::ranges::move(replica_scenarios(), std::back_inserter(scenarios));
  std::ranges::move(label_scenarios(), std::back_inserter(scenarios));
  std::ranges::move(file_scenarios(), std::back_inserter(scenarios));
  std::ranges::move(replacing_scenarios(), std::back_inserter(scenarios));
  std::ranges::move(removing_scenarios(), std::back_inserter(scenarios));
  std::ranges::move(retaining_scenarios(), std::back_inserter(scenarios));
  std::ranges::move(crash_branches(), std::back_inserter(scenarios));
  std::ranges::move(crash_repairs(), std::back_inserter(scenarios));
  return scenarios;
}

}  // namespace

const std::vector<CrashScenario>& crash_scenarios() {
  static const std::vector<CrashScenario> scenarios = make_scenarios();
  return scenarios;
}

const CrashScenario& crash_scenario(const std::string& name) {
  return *std::ranges::find(crash_scenarios(), name, &CrashScenario::name);
}

}  // namespace bitsnap::store
