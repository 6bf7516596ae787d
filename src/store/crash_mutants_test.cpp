// Checks that the crash tests notice a missing sync: each sync is omitted in turn, and some law must break.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "store/crash_scenarios_testing.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

using os::FileOperation;

using Places = std::map<std::string, std::vector<std::uint64_t>>;

// The syncs of a run, grouped by their place in the code. The place follows from the synced path and the operation
// before it, with numbers and random names masked.
Places places_of(const std::vector<os::FaultyFileSystem::Step>& steps) {
  Places places;
  std::string before;
  std::uint64_t number = 0;
  constexpr std::string_view kRetired = "/retired.json";
  for (const os::FaultyFileSystem::Step& step : steps) {
    std::string here = step_text(step);
    // An unfinished branch and a branch are stores like the run.
    for (const std::string_view branch : {"/branches/.new", "/branches/b"}) {
      for (std::size_t at = 0; (at = here.find(branch, at)) != std::string::npos;) here.erase(at, branch.size());
    }
    for (char& c : here) c = c >= '0' && c <= '9' ? '0' : c;
    if (const std::size_t random = here.find(".json."); random != std::string::npos) here.resize(random);
    if (const std::size_t hash = here.find("files-"); hash != std::string::npos) here.resize(hash);
    if (here.ends_with(kRetired)) here.replace(here.size() - kRetired.size(), kRetired.size(), "/commit.json");
    if (step.operation == FileOperation::sync || step.operation == FileOperation::sync_directory) {
      places[here + ", after " + before].push_back(number++);
    }
    before = here;
  }
  return places;
}

// The same; a place of which no sync made anything durable has none.
Places syncs_by_place(const OperationLog& log) {
  Places places = places_of(log.steps);
  const auto is_needed = [&](std::uint64_t sync) { return log.needed_syncs.contains(sync); };
  for (auto& [place, syncs] : places) {
    if (std::ranges::none_of(syncs, is_needed)) syncs.clear();
  }
  return places;
}

// What decides which file operations continuing makes: the disk as programs see it, and what it may show.
using SeenDisk = std::tuple<std::string, std::uint64_t, std::vector<TestRun>>;

SeenDisk as_seen(const CrashScenario& scenario, const Stopped& stopped) {
  const auto files = stopped.files->copy();
  files->crash(os::FakeFileSystem::CrashSpares::all);
  return {scenario.name, fingerprint(*files), stopped.journal.allowed()};
}

constexpr Destination kDestinations[] = {Destination::disk, Destination::memory};

// Checks that a saved shard survives a crash, and that another rank can commit it. Returns an empty string if so.
std::string check_shard_outlives(Destination destination, std::uint64_t step,
                                 const std::vector<std::uint64_t>& skipped_syncs, const Death& death,
                                 OperationLog* log = nullptr) {
  os::FakeFileSystem files;
  os::FaultyFileSystem faulty(files);
  StoreOptions options;
  options.access = StoreAccess::shared;
  TestRun run;
  {
    const auto store = open_store(files, kTestRun, options);
    Journal journal;
    for (std::uint64_t earlier = 1; earlier < step; ++earlier) {
      EXPECT_TRUE(save_two_shards(**store, **store, journal, earlier));
    }
    run = journal.run();
  }
  for (const std::uint64_t sync : skipped_syncs) faulty.skip_sync(sync);
  run[step] = {0, 2};
  {
    const auto store = open_store(faulty, kTestRun, options);
    EXPECT_TRUE(save_to(destination, **store, step, ShardPlace{0, 2, "a1"}, test_state(step, 0)));
  }
  if (log != nullptr) {
    log->steps = faulty.steps();
    for (std::uint64_t sync = 0; sync < faulty.count_syncs(); ++sync) log->needed_syncs.insert(sync);
  }
  death.strike(files);
  const auto store = open_store(files, kTestRun, options);
  if (!store) return store.error().message();
  EXPECT_TRUE((*store)->save_shard(step, {1, 2, "a1"}, test_state(step, 1).state(), {1, nullptr}));
  const auto committed = (*store)->commit(step, 2, "a1");
  if (!committed) return committed.error().message();
  return *committed ? check_shown(files, {run}) : "not all shards are there";
}

TEST(CrashMutants, ASavedShardSurvivesACrash) {
  for (const Destination destination : kDestinations) {
    for (const std::uint64_t step : {1U, 2U}) {
      for (const Death& death : machine_deaths(20, 1))
        EXPECT_EQ(check_shard_outlives(destination, step, {}, death), "") << death.text();
    }
  }
}

TEST(CrashMutants, EveryOmittedSyncIsCaught) {
  if (takes_samples()) GTEST_SKIP() << "judges the order of operations, which is the same in the optimised build";
  std::set<std::string> caught;
  std::set<std::string> missed;
  const auto note = [&](const std::string& place, const std::string& broken) {
    (broken.empty() ? missed : caught).insert(place);
  };
  std::map<std::string, std::unique_ptr<CrashTrial>> trials;
  for (const CrashScenario& scenario : crash_scenarios()) {
    CrashTrial& trial = *trials.emplace(scenario.name, std::make_unique<CrashTrial>(scenario)).first->second;
    for (const auto& [place, syncs] : syncs_by_place(trial.log())) {
      if (!caught.contains(place)) note(place, syncs.empty() ? "" : trial.check_without(syncs, machine_deaths(4, 1)));
    }
  }
  for (const Destination destination : kDestinations) {
    for (const std::uint64_t step : {1U, 2U}) {
      OperationLog log;
      EXPECT_EQ(check_shard_outlives(destination, step, {}, Death{}, &log), "");
      for (const auto& [place, syncs] : syncs_by_place(log)) {
        for (const Death& death : machine_deaths(4, 1)) {
          if (!caught.contains(place)) note(place, check_shard_outlives(destination, step, syncs, death));
        }
      }
    }
  }
  // Syncs that are needed only after a writer was killed. Few crashes reveal some of them, so the rest gets more random
  // crashes.
  std::set<SeenDisk> caught_from;
  for (const std::uint64_t random_crashes : {1U, 40U}) {
    for (const CrashScenario& scenario : crash_scenarios()) {
      if (random_crashes > 1 && std::ranges::includes(caught, missed)) break;
      CrashTrial& trial = *trials.at(scenario.name);
      for (const auto& [point, stopped] : trial.kill_everywhere()) {
        const SeenDisk seen = as_seen(scenario, stopped);
        const auto is_caught = [&](const auto& place) { return caught.contains(place.first); };
        if (caught_from.contains(seen)) continue;
        if (std::ranges::all_of(places_of(trial.steps_going_on(stopped)), is_caught)) {
          caught_from.insert(seen);
          continue;
        }
        for (const auto& [place, syncs] : syncs_by_place(trial.log_going_on(stopped))) {
          if (caught.contains(place)) continue;
          note(place,
               syncs.empty() ? "" : trial.check_going_on(stopped, machine_deaths(random_crashes, point * 100), syncs));
        }
      }
    }
  }
  std::cout << caught.size() << " places\n";
  for (const std::string& place : caught) missed.erase(place);
  for (const std::string& place : missed) ADD_FAILURE() << "nobody notices that this is left out: " << place;
}

}  // namespace
}  // namespace bitsnap::store
