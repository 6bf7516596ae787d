// Checkpoints that have lost their record: what opening, pruning and repairing may do.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

constexpr const char* kFile = "shard-00000-of-00001.bsnap";

class LostRecord : public testing::Test {
 protected:
  using Steps = std::vector<std::uint64_t>;

  std::unique_ptr<Store> open(StoreAccess access = StoreAccess::write) {
    StoreOptions options;
    options.access = access;
    auto store = open_store(files_, "/run", options);
    EXPECT_TRUE(store) << store.error().message();
    return store ? std::move(*store) : nullptr;
  }
  // Saves the steps as one chain.
  void save_steps(std::uint64_t last) {
    const auto store = open();
    for (std::uint64_t step = 1; step <= last; ++step) ASSERT_TRUE(store->save(step, TestState(step).state())) << step;
  }
  void prune(const Steps& kept, std::optional<std::uint64_t> keep_last = std::nullopt) {
    Retention retention;
    retention.keep = kept;
    retention.keep_last = keep_last;
    PruneOptions options;
    options.reencode = Reencode::never;
    ASSERT_TRUE(open()->prune(retention, options));
  }
  std::string path(std::uint64_t step, const std::string& name) { return RunLayout("/run").step_file(step, name); }
  void lose(std::uint64_t step) { ASSERT_TRUE(files_.remove(path(step, "commit.json"))); }
  void flip(const std::string& file, std::uint64_t at) {
    auto bytes = os::read_file(files_, file, 1 << 24).value();
    bytes.at(at) ^= std::byte{1};
    files_.plant(file, bytes);
  }
  // Flips a bit in the index of a step's file.
  void damage_index(std::uint64_t step) { flip(path(step, kFile), files_.stat(path(step, kFile))->size_bytes - 60); }
  RepairReport repair() {
    auto report = repair_store(files_, "/run", {});
    EXPECT_TRUE(report) << report.error().message();
    return report ? std::move(*report) : RepairReport{};
  }
  void expect_whole(const Steps& steps) {
    const auto store = open(StoreAccess::read);
    EXPECT_EQ(store->steps().value(), steps);
    for (const std::uint64_t step : steps) EXPECT_EQ(check_step(*store, step, TestState(step)), "") << step;
    EXPECT_TRUE(store->verify().value().damages.empty());
  }
  // Whether the snapshot file of a step exists anywhere.
  bool has_file_of(std::uint64_t step) {
    const std::string end = step_name(step) + "/" + kFile;
    return std::ranges::any_of(files_.all_files(), [&](const std::string& file) { return file.ends_with(end); });
  }

  os::FakeFileSystem files_;
};

TEST_F(LostRecord, OpeningRemovesNothingIfTwoRecordsAreLost) {
  save_steps(6);
  lose(2);
  lose(3);
  open();
  repair();
  expect_whole({1, 2, 3, 4, 5, 6});
}

TEST_F(LostRecord, PruneKeepsPossibleDependencies) {
  save_steps(6);
  lose(3);
  prune({}, 2);
  repair();
  prune({}, 2);
  expect_whole({5, 6});
}

TEST_F(LostRecord, PruneKeepsRetiredStepsBelowIt) {
  save_steps(6);
  prune({3, 4, 5, 6});
  lose(3);
  prune({}, 1'000'000);
  repair();
  expect_whole({3, 4, 5, 6});
}

TEST_F(LostRecord, IsRebuiltForAnUnneededStep) {
  save_steps(4);
  prune({2}, 1);
  {
    // A keyframe, so that nobody needs step 2 any more.
    StoreOptions options;
    options.access = StoreAccess::write;
    options.settings.max_depth = 0;
    const auto store = open_store(files_, "/run", options).value();
    TestState other(5, 7);
    ASSERT_TRUE(store->save(5, other.state()));
  }
  lose(2);
  EXPECT_EQ(repair().mended.size(), 1U);
  const auto store = open(StoreAccess::read);
  EXPECT_EQ(store->steps().value(), (Steps{2, 4, 5}));
  EXPECT_EQ(check_step(*store, 2, TestState(2)), "");
}

TEST_F(LostRecord, OpeningAndPruningKeepTheOnlyStep) {
  save_steps(4);
  prune({}, 1);
  lose(4);
  open();
  prune({}, 1);
  EXPECT_EQ(open(StoreAccess::read)->steps().value(), Steps{});
  repair();
  expect_whole({4});
}

TEST_F(LostRecord, TrainingContinuesAboveRetiredStepsIfNoCheckpointIsLeft) {
  save_steps(4);
  prune({}, 1);
  damage_index(4);
  EXPECT_EQ(repair().dropped.size(), 1U);
  EXPECT_FALSE(open()->save(1, TestState(1).state())) << "is there, pruned";
  ASSERT_TRUE(files_.stat(path(3, "retired.json"))->exists);
  prune({}, 1);
  EXPECT_FALSE(open()->save(3, TestState(3).state())) << "is there, pruned";
  ASSERT_TRUE(open()->save(5, TestState(5).state()));
  expect_whole({5});
}

TEST_F(LostRecord, OpeningAfterACrashWithoutDirectorySyncKeepsSteps) {
  files_.refuse_directory_sync();
  for (std::uint64_t step = 1; step <= 4; ++step) {
    ASSERT_TRUE(open()->save(step, TestState(step).state()));
    prune({}, 1);
  }
  const auto has = [](os::FakeFileSystem& files, const std::string& end) {
    return std::ranges::any_of(files.all_files(), [&](const std::string& file) { return file.ends_with(end); });
  };
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto crashed = files_.copy();
    crashed->crash_at_random(seed);
    if (!has(*crashed, "retired.json")) continue;
    StoreOptions options;
    options.access = StoreAccess::write;
    if (open_store(*crashed, "/run", options)) {
      EXPECT_TRUE(has(*crashed, ".bsnap")) << seed;
    }
  }
}

TEST_F(LostRecord, IsKeptAfterATemporaryReadError) {
  save_steps(6);
  lose(2);
  lose(3);
  std::uint64_t point = 0;
  {
    const auto copy = files_.copy();
    os::FaultyFileSystem watched(*copy);
    ASSERT_TRUE(repair_store(watched, "/run", {}));
    const auto steps = watched.steps();
    const auto opening = std::ranges::find_if(steps, [&](const auto& step) {
      return step.operation == os::FileOperation::open && step.path == path(2, kFile);
    });
    point = static_cast<std::uint64_t>(opening - steps.begin());
  }
  os::FaultyFileSystem faulty(files_);
  faulty.fail_at(point, {.kind = ErrorKind::io, .lasting = false, .half_done = false});
  EXPECT_FALSE(repair_store(faulty, "/run", {}));
  repair();
  expect_whole({1, 2, 3, 4, 5, 6});
}

TEST_F(LostRecord, IsSetAsideIfItCannotBeRebuilt) {
  save_steps(6);
  lose(2);
  lose(3);
  damage_index(2);
  repair();
  EXPECT_TRUE(has_file_of(2));
  EXPECT_TRUE(has_file_of(3));
  // Later steps have lost what they need of step 2, and are read in part.
  const auto store = open(StoreAccess::read);
  EXPECT_EQ(store->steps().value(), (Steps{1, 4, 5, 6}));
  EXPECT_EQ(store->latest().value(), 1U);
  EXPECT_EQ(check_step(*store, 1, TestState(1)), "");
}

TEST_F(LostRecord, IsRebuiltBelowAnUnreadableRecord) {
  save_steps(5);
  lose(4);
  flip(path(5, "commit.json"), 40);
  damage_index(5);
  open();
  EXPECT_TRUE(has_file_of(4)) << "opening takes nothing";
  repair();
  expect_whole({1, 2, 3, 4});
}

// A repair rebuilds or gives up each record once. The number of opened files grows faster only because each file is
// opened with its bases.
TEST_F(LostRecord, RepairOfALongChainIsFast) {
  const auto opened_files = [](std::uint64_t steps) {
    os::FakeFileSystem files;
    StoreOptions options;
    options.access = StoreAccess::write;
    options.settings.max_depth = 32;
    const RunLayout layout("/run");
    {
      const auto store = open_store(files, "/run", options).value();
      for (std::uint64_t step = 1; step <= steps; ++step) EXPECT_TRUE(store->save(step, TestState(step).state()));
    }
    for (std::uint64_t step = 2; step < steps; ++step) EXPECT_TRUE(files.remove(layout.commit(step)));
    EXPECT_TRUE(files.remove(layout.step_file(2, kFile)));
    os::FaultyFileSystem counted(files);
    EXPECT_TRUE(repair_store(counted, "/run", {}));
    return counted.count(os::FileOperation::open);
  };
  EXPECT_LT(opened_files(20), 6 * opened_files(10));
}

TEST_F(LostRecord, RunRecordIsRebuiltWithTheLock) {
  save_steps(2);
  ASSERT_TRUE(files_.remove("/run/bitsnap.json"));
  ASSERT_TRUE(files_.remove("/run/lock"));
  repair();
  expect_whole({1, 2});
}

// The rebuilt run record has the policy of the newest checkpoint and no loss rules, and the report says so.
TEST_F(LostRecord, RunRecordIsRebuiltWithTheNewestPolicy) {
  for (const Policy policy : {Policy::bounded, Policy::lossless, Policy::raw}) {
    os::FakeFileSystem files;
    StoreOptions options;
    options.access = StoreAccess::write;
    const StoreOptions write = options;
    options.settings.policy = policy;
    options.settings.loss = {parse_loss_rule("master=exact").value()};
    ASSERT_TRUE(open_store(files, "/run", options).value()->save(1, TestState(1).state()));
    ASSERT_TRUE(open_store(files, "/run", write).value()->save(2, TestState(2).state()));
    ASSERT_TRUE(files.remove("/run/bitsnap.json"));
    const RepairReport report = repair_store(files, "/run", {}).value();
    const auto store = open_store(files, "/run", write).value();
    EXPECT_EQ(store->settings().policy, policy);
    EXPECT_TRUE(store->settings().loss->empty());
    ASSERT_EQ(report.mended.size(), 1U);
    const std::string& said = report.mended[0].what;
    EXPECT_NE(said.find(policy_name(policy)), std::string::npos) << said;
    EXPECT_NE(said.find("its loss rules, if any, are lost"), std::string::npos) << said;
    EXPECT_EQ(said.find("new checkpoints are lossless") == std::string::npos, policy == Policy::bounded) << said;
  }
}

// A whole step must not need a retired step that refers to damaged chunks.
TEST_F(LostRecord, WholeStepsAboveRetiredAndDamagedOnesStay) {
  save_steps(6);
  prune({4, 6});
  {
    const auto snapshot = open(StoreAccess::read)->snapshot(4).value();
    flip(path(4, kFile), snapshot->chunk_info(snapshot->streams().size() - 1, 0)->offset);
  }
  repair();
  const auto store = open(StoreAccess::read);
  EXPECT_EQ(store->steps().value(), (Steps{4, 6}));
  EXPECT_EQ(store->latest().value(), 6U);
  EXPECT_EQ(check_step(*store, 6, TestState(6)), "");
}

// The newest step is coded against 4, which is retired and takes a tensor from 2. The base of 2 is gone.
TEST_F(LostRecord, IsRebuiltForRetiredDependencies) {
  const auto bytes = [](std::uint64_t seed, std::uint64_t changed) {
    std::vector<std::byte> made(9000);
    std::uint64_t random = seed * 0x9E3779B97F4A7C15 + 1;
    for (std::byte& byte : made) {
      random = random * 6364136223846793005 + 1442695040888963407;
      byte = static_cast<std::byte>(random >> 56);
    }
    for (std::uint64_t i = 0; i < changed; ++i) made[100 * i] ^= std::byte{1};
    return made;
  };
  const auto state = [&](std::uint64_t step) {
    TestState made;
    made.add("moving", DType::u8, bytes(1, step));
    made.add("rare", DType::u8, bytes(step < 2 ? 2 : step < 5 ? 3 : 4, 0));
    return made;
  };
  StoreOptions options;
  options.access = StoreAccess::write;
  for (std::uint64_t step = 1; step <= 5; ++step) {
    options.settings.max_depth = step <= 3 ? 1 : 2;
    ASSERT_TRUE(open_store(files_, "/run", options).value()->save(step, state(step).state()));
  }
  prune({5});
  ASSERT_FALSE(files_.stat(path(1, "retired.json"))->exists);
  ASSERT_TRUE(files_.remove(path(2, "retired.json")));
  EXPECT_TRUE(repair().dropped.empty());
  const auto store = open(StoreAccess::read);
  EXPECT_EQ(check_step(*store, 5, state(5)), "");
  EXPECT_TRUE(store->verify().value().damages.empty());
}

TEST_F(LostRecord, DryRepairReportsAStrayAboveTheNewest) {
  save_steps(3);
  lose(3);
  RepairOptions dry;
  dry.dry_run = true;
  const auto told = repair_store(files_, "/run", dry).value();
  const auto done = repair();
  EXPECT_EQ(told.strays, done.strays);
  EXPECT_EQ(done.strays, std::vector<std::string>{"checkpoints/0000000003"});
}

}  // namespace
}  // namespace bitsnap::store
