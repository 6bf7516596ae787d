// Stops every operation of a store at each of its file operations, lets the process or the machine die there, and
// checks the laws of the store. docs/spec/store.md, "Order of operations".
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "store/crash_scenarios_testing.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

// All of them, or where the tests take samples, about `count` with equal distances.
std::vector<std::uint64_t> sampled(const std::vector<std::uint64_t>& points, std::size_t count) {
  if (!takes_samples()) return points;
  std::vector<std::uint64_t> sample;
  const std::size_t distance = std::max<std::size_t>(1, points.size() / count);
  for (std::size_t i = 0; i < points.size(); i += distance) sample.push_back(points[i]);
  return sample;
}

class CrashMatrix : public testing::TestWithParam<std::string> {
 protected:
  void report(const CrashTrial& trial) {
    RecordProperty("cases", std::to_string(trial.cases()));
    std::cout << GetParam() << ": " << trial.cases() << " cases, " << trial.different_cases() << " different disks\n";
  }
};

TEST_P(CrashMatrix, CommittedStepsSurviveEveryCrash) {
  CrashTrial trial(crash_scenario(GetParam()));
  for (std::uint64_t point = 0; point <= trial.steps().size(); ++point) {
    const bool is_done = point == trial.steps().size();
    if (takes_samples() && !is_done && point % 5 != 0) continue;
    // The disk stays the same between two file operations that change something.
    const bool changes = is_done || changes_something(trial.steps()[point]);
    for (const bool half_done : {false, true}) {
      if (half_done && (!changes || is_done)) continue;
      const Stopped stopped = trial.stop_at(point, half_done);
      std::vector<Death> deaths = {Death{}};
      if (changes) std::ranges::copy(machine_deaths(takes_samples() ? 2 : 8, point * 100), std::back_inserter(deaths));
      for (const Death& death : deaths) {
        ASSERT_EQ(trial.check(*stopped.files, stopped.journal, death), "")
            << trial.at(point) << (half_done ? ", half done" : "");
      }
    }
  }
  report(trial);
}

TEST_P(CrashMatrix, UnsyncedLeftoversOfAKilledWriterAreHarmless) {
  CrashTrial trial(crash_scenario(GetParam()));
  const auto killed = trial.kill_everywhere();
  for (const std::uint64_t point : sampled(trial.points(), 8)) {
    ASSERT_EQ(trial.check_going_on(killed.at(point), later_deaths(point)), "") << "killed " << trial.at(point);
  }
  report(trial);
}

// Such a file system promises nothing about names after a crash. Everything else must hold.
TEST_P(CrashMatrix, HoldsWithoutDirectorySyncIfNamesSurvive) {
  CrashTrial trial(crash_scenario(GetParam()), false);
  for (const std::uint64_t point : sampled(trial.points(), 16)) {
    const Stopped stopped = trial.stop_at(point, false);
    for (const Death& death : {Death{}, Death{Death::Kind::machine, os::FakeFileSystem::CrashSpares::directory_entries},
                               Death{Death::Kind::machine, os::FakeFileSystem::CrashSpares::all}}) {
      ASSERT_EQ(trial.check(*stopped.files, stopped.journal, death), "") << trial.at(point);
    }
  }
}

TEST(CrashMatrixTest, RecordAndHandleReportMissingDirectorySync) {
  for (const bool has_sync : {true, false}) {
    os::FakeFileSystem files;
    if (!has_sync) files.refuse_directory_sync();
    StoreOptions options;
    options.access = StoreAccess::write;
    const auto store = open_store(files, kTestRun, options);
    ASSERT_TRUE(store);
    for (const std::uint64_t step : {1U, 2U}) {
      ASSERT_TRUE((*store)->save(step, test_state(step, 0).state()));
      EXPECT_EQ((*store)->is_durable(), has_sync);
      EXPECT_EQ(read_commit_record(files, RunLayout(kTestRun), step)->directory_sync, has_sync);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, CrashMatrix, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const CrashScenario& scenario : crash_scenarios()) names.push_back(scenario.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace bitsnap::store
