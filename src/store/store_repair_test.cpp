// Damage of every kind: what verification reports, and what a repair saves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/run_testing.hpp"
#include "store/sealed_json.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

class DamagedStore : public testing::Test {
 protected:
  // Steps 1 and 5 are keyframes. All large tensors have chunks of their own.
  void save_steps(std::uint64_t last) {
    StoreOptions options;
    options.access = StoreAccess::write;
    options.settings.max_depth = 3;
    const auto store = open_store(files_, "/run", options).value();
    for (std::uint64_t step = 1; step <= last; ++step) {
      ASSERT_TRUE(store->save(step, TestState(step).state())) << step;
    }
  }
  std::unique_ptr<Store> open(StoreAccess access = StoreAccess::read) {
    StoreOptions options;
    options.access = access;
    return open_store(files_, "/run", options).value();
  }
  std::string path(std::uint64_t step, const std::string& name = "shard-00000-of-00001.bsnap") {
    return RunLayout("/run").step_file(step, name);
  }
  void flip(const std::string& file, std::size_t at) {
    auto bytes = os::read_file(files_, file, 1 << 24).value();
    bytes.at(at) ^= std::byte{1};
    files_.plant(file, bytes);
  }
  void retire_all_but_the_newest() {
    Retention retention;
    retention.keep_last = 1;
    PruneOptions options;
    options.reencode = Reencode::never;
    ASSERT_TRUE(open(StoreAccess::write)->prune(retention, options));
  }
  // A retention of four has each step written again against the next.
  std::unique_ptr<Store> open_with_retention() {
    StoreOptions options;
    options.access = StoreAccess::write;
    options.retention.keep_last = 4;
    return open_store(files_, "/run", options).value();
  }
  void save_backwards() {
    for (std::uint64_t step = 1; step <= 5; ++step) {
      ASSERT_TRUE(open_with_retention()->save(step, TestState(step).state()));
    }
    ASSERT_EQ(open()->checkpoint(3)->base, 4U);
    ASSERT_EQ(open()->checkpoint(4)->base, 5U);
  }
  // Damages the first payload of a file that may have been written again.
  void flip_payload(std::uint64_t step) {
    const std::vector<std::string> names = files_.list_directory(RunLayout("/run").step_directory(step)).value();
    for (const std::string& name : names) {
      if (name.ends_with(".bsnap")) flip(path(step, name), 70);
    }
  }
  using Names = std::set<std::string>;
  // The tensors of a step that cannot be read, if all others are as they were.
  Names damaged_in(const Store& store, std::uint64_t step) {
    const auto snapshot = store.snapshot(step, 0, true);
    EXPECT_TRUE(snapshot) << snapshot.error().message();
    if (!snapshot) return {};
    Names names;
    const std::vector<DamagedTensor> damaged = (*snapshot)->damaged_tensors().value();
    for (const DamagedTensor& each : damaged) names.insert((*snapshot)->tensors()[each.tensor].name);
    EXPECT_EQ(difference(**snapshot, TestState(step), names), "") << step;
    return names;
  }
  RepairReport repair(bool dry_run = false) {
    RepairOptions options;
    options.dry_run = dry_run;
    auto report = repair_store(files_, "/run", options);
    EXPECT_TRUE(report) << report.error().message();
    return report ? std::move(*report) : RepairReport{};
  }
  // Checks that every shown step is whole, that verification finds nothing, and that the next save works.
  void expect_sound(const std::vector<std::uint64_t>& steps) {
    const auto store = open(StoreAccess::write);
    EXPECT_EQ(store->steps().value(), steps);
    for (const std::uint64_t step : steps) EXPECT_EQ(check_step(*store, step, TestState(step)), "");
    const auto verified = store->verify().value();
    EXPECT_TRUE(verified.damages.empty()) << verified.damages.front().error.message();
    EXPECT_TRUE(verified.strays.empty()) << verified.strays.front();
    const std::uint64_t next = steps.empty() ? 1 : steps.back() + 1;
    const auto saved = store->save(next, TestState(next).state());
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_EQ(saved->damage, std::nullopt);
    EXPECT_EQ(check_step(*store, next, TestState(next)), "");
  }

  os::FakeFileSystem files_;
};

// A directory of a step without a record stays if it holds files of other programs. Only what goes is reported.
TEST_F(DamagedStore, ReportsAsRemovedOnlyWhatIsRemoved) {
  save_steps(2);
  files_.plant(path(7, "notes.txt"), {});
  files_.plant(path(8, "notes.txt"), {});
  files_.plant(path(8), {});
  files_.plant(path(9), {});
  const std::vector<std::string> removed = {"checkpoints/0000000008/shard-00000-of-00001.bsnap",
                                            "checkpoints/0000000009"};
  EXPECT_EQ(open()->verify()->strays, removed);
  EXPECT_EQ(repair(true).strays, removed);
  EXPECT_EQ(repair().strays, removed);
  EXPECT_TRUE(files_.stat(path(8, "notes.txt"))->exists);
  EXPECT_FALSE(files_.stat(path(8))->exists);
  EXPECT_FALSE(files_.stat(RunLayout("/run").step_directory(9))->exists);
  EXPECT_TRUE(repair().strays.empty()) << "again";
  EXPECT_TRUE(open()->verify()->strays.empty());
}

TEST_F(DamagedStore, VerificationNamesStepTensorAndChunk) {
  save_steps(8);
  flip(path(5), 70);  // the first payload
  const auto verified = open()->verify().value();
  ASSERT_FALSE(verified.damages.empty());
  EXPECT_EQ(verified.damages.front().step, 5U);
  EXPECT_EQ(verified.damages.front().file, "checkpoints/0000000005/shard-00000-of-00001.bsnap");
  EXPECT_NE(verified.damages.front().where.find("tensor 'weight', chunk 0"), std::string::npos)
      << verified.damages.front().where;
}

TEST_F(DamagedStore, EveryFlippedByteIsFoundAndRepaired) {
  save_steps(6);
  const std::vector<std::string> all = files_.all_files();
  std::size_t cases = 0;
  for (const std::string& file : all) {
    if (file == "/run/lock" || file == "/run/catalog") continue;
    const auto bytes = os::read_file(files_, file, 1 << 24).value();
    const std::size_t stride = std::max<std::size_t>(1, bytes.size() / 6);
    for (std::size_t at = 0; at < bytes.size(); at += stride) {
      os::FakeFileSystem copy;
      for (const std::string& other : all) copy.plant(other, os::read_file(files_, other, 1 << 24).value());
      auto damaged = bytes;
      damaged[at] ^= std::byte{0x10};
      copy.plant(file, damaged);
      const bool is_run_record = file == "/run/bitsnap.json";
      const auto opened = open_store(copy, "/run", {});
      EXPECT_EQ(opened.has_value(), !is_run_record);
      if (opened) {
        const auto verified = (*opened)->verify();
        ASSERT_TRUE(verified);
        EXPECT_FALSE(verified->damages.empty()) << file << " at " << at;
      }
      const auto repaired = repair_store(copy, "/run", {});
      ASSERT_TRUE(repaired) << repaired.error().message();
      const auto again = open_store(copy, "/run", {});
      ASSERT_TRUE(again) << file << " at " << at << again.error().message();
      const auto steps = (*again)->steps().value();
      EXPECT_EQ(steps.size(), repaired->checkpoints + repaired->damaged.size());
      EXPECT_EQ(steps.size() + repaired->dropped.size(), 6U);
      std::set<std::uint64_t> kept;
      for (const RepairReport::Damaged& each : repaired->damaged) kept.insert(each.step);
      for (const std::uint64_t step : steps) {
        if (!kept.contains(step)) {
          EXPECT_EQ(check_step(**again, step, TestState(step)), "") << file << " at " << at;
        }
        EXPECT_EQ((*again)->checkpoint(step)->damage.has_value(), kept.contains(step));
      }
      const auto clean = (*again)->verify().value();
      for (const StoreDamage& damage : clean.damages) EXPECT_TRUE(kept.contains(damage.step)) << damage.step;
      EXPECT_TRUE(clean.strays.empty());
      ++cases;
    }
  }
  EXPECT_GT(cases, 70U);
}

TEST_F(DamagedStore, KeepsStepsThatNeedOnlyUndamagedParts) {
  save_steps(8);
  // All steps need "expert" of step 1 until it changes. Only step 4 needs its own pool, which holds "step". The pool's
  // payload is the last one before the index.
  const auto snapshot = open()->snapshot(4).value();
  const auto pool = snapshot->streams().size() - 1;
  ASSERT_FALSE(snapshot->streams()[pool].tensor);
  flip(path(4), static_cast<std::size_t>(snapshot->chunk_info(pool, 0)->offset));
  const auto dry = repair(true);
  const auto report = repair();
  EXPECT_TRUE(report.dropped.empty());
  ASSERT_EQ(report.damaged.size(), 1U);
  EXPECT_EQ(report.damaged[0].step, 4U);
  EXPECT_EQ(report.damaged[0].tensors, 6U);
  EXPECT_EQ(report.damaged[0].damaged_tensors, 1U);
  EXPECT_EQ(dry.damaged.size(), 1U);
  EXPECT_EQ(report.checkpoints, 7U);
  const auto store = open();
  for (const std::uint64_t step : {1U, 2U, 3U, 5U, 6U, 7U, 8U})
    EXPECT_EQ(check_step(*store, step, TestState(step)), "");
  EXPECT_EQ(damaged_in(*store, 4), (Names{"step"}));
}

TEST_F(DamagedStore, KeepsWhatDoesNotNeedTheDamagedChunk) {
  save_steps(8);
  flip(path(5), 70);  // the first payload, of "weight"
  for (int again = 0; again < 2; ++again) {
    const RepairReport report = repair();
    EXPECT_TRUE(report.dropped.empty());
    ASSERT_EQ(report.damaged.size(), 4U);
    EXPECT_EQ(report.checkpoints, 4U);
    const auto store = open();
    EXPECT_EQ(store->steps()->size(), 8U);
    EXPECT_EQ(store->latest().value(), 4U);
    EXPECT_EQ(check_step(*store, 4, TestState(4)), "");
    EXPECT_EQ((*store->snapshot())->id(), (*store->snapshot(4))->id());
    for (const std::uint64_t step : {5U, 6U, 7U, 8U}) EXPECT_EQ(damaged_in(*store, step), (Names{"weight"})) << step;
    EXPECT_EQ(store->checkpoints().value()[4].damage->kind(), ErrorKind::corrupt);
    EXPECT_EQ(store->checkpoints().value()[4].shards, 1U);
  }
}

// All but these two are in the steps themselves or in step 1.
TEST_F(DamagedStore, ReadsWhatDoesNotNeedALostIndex) {
  save_steps(8);
  flip(path(5), static_cast<std::size_t>(files_.stat(path(5))->size_bytes) - 60);
  const auto check = [&] {
    const auto store = open();
    for (const std::uint64_t step : {6U, 7U, 8U}) {
      EXPECT_EQ(store->snapshot(step).error().kind(), ErrorKind::corrupt);
      EXPECT_EQ(damaged_in(*store, step), (Names{"other", "weight"})) << step;
    }
  };
  check();
  EXPECT_EQ(open()->snapshot(5, 0, true).error().kind(), ErrorKind::corrupt);
  const RepairReport report = repair();
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].step, 5U);
  EXPECT_EQ(report.dropped[0].moved_to, "damaged/0000000005");
  EXPECT_EQ(report.damaged.size(), 3U);
  check();
}

// Step 4 needs "other" of step 3, which is sound, and "weight" of it, which is not.
TEST_F(DamagedStore, KeepsARetiredStepWhoseSoundChunksAreNeeded) {
  save_steps(4);
  retire_all_but_the_newest();
  flip(path(3), 70);
  for (int again = 0; again < 2; ++again) {
    const RepairReport report = repair();
    EXPECT_TRUE(report.dropped.empty());
    ASSERT_EQ(report.damaged.size(), 1U);
    EXPECT_EQ(damaged_in(*open(), 4), (Names{"weight"}));
  }
  const auto store = open(StoreAccess::write);
  EXPECT_EQ(store->latest().value(), std::nullopt);
  EXPECT_EQ(store->snapshot().error().kind(), ErrorKind::not_found);
  ASSERT_TRUE(store->save(5, TestState(5).state()));
  ASSERT_TRUE(store->remove({4}));
  EXPECT_FALSE(files_.stat(RunLayout("/run").step_directory(3))->exists);
  EXPECT_EQ(check_step(*store, 5, TestState(5)), "");
  EXPECT_TRUE(store->verify()->damages.empty());
}

// Step 3 is sound itself, and leads to step 2.
TEST_F(DamagedStore, KeepsWhatASoundRetiredStepLeadsTo) {
  save_steps(4);
  retire_all_but_the_newest();
  flip(path(2), 70);
  const Names before = damaged_in(*open(), 4);
  EXPECT_EQ(before, (Names{"weight"}));
  for (int again = 0; again < 2; ++again) {
    const RepairReport report = repair();
    EXPECT_TRUE(report.dropped.empty());
    ASSERT_EQ(report.damaged.size(), 1U);
    EXPECT_EQ(report.damaged[0].damaged_tensors, 1U);
    EXPECT_EQ(damaged_in(*open(), 4), before);
  }
}

TEST_F(DamagedStore, RefusesARollbackThatWouldCostADamagedCheckpointMore) {
  save_backwards();
  flip_payload(3);
  EXPECT_EQ(repair().damaged.size(), 2U);
  const Names lost = damaged_in(*open(), 3);
  ASSERT_FALSE(lost.empty());
  const auto refused = open_with_retention()->rollback(3);
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("steps 2 and 3, kept as damaged"));
  // Step 4 can be written again without step 5.
  CommitOptions replacing;
  replacing.replace = true;
  ASSERT_TRUE(open_with_retention()->save(5, TestState(5).state(), {}, nullptr, replacing));
  EXPECT_EQ(damaged_in(*open(), 3), lost);
  ASSERT_TRUE(open_with_retention()->save(6, TestState(6).state()));
  EXPECT_EQ(check_step(*open(), 6, TestState(6)), "");
  EXPECT_EQ(damaged_in(*open(), 3), lost);
}

TEST_F(DamagedStore, RefusesToReplaceWhatADamagedCheckpointNeeds) {
  save_backwards();
  flip_payload(4);
  EXPECT_FALSE(repair().damaged.empty());
  const Names lost = damaged_in(*open(), 4);
  CommitOptions replacing;
  replacing.replace = true;
  const auto refused = open_with_retention()->save(5, TestState(6).state(), {}, nullptr, replacing);
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(check_step(*open(), 5, TestState(5)), "");
  EXPECT_EQ(damaged_in(*open(), 4), lost);
  ASSERT_TRUE(open_with_retention()->save(6, TestState(6).state()));
  EXPECT_EQ(check_step(*open(), 6, TestState(6)), "");
  EXPECT_EQ(damaged_in(*open(), 4), lost);
}

// What is left of step 2 needs a base that is in damaged/.
TEST_F(DamagedStore, KeepsADamagedCheckpointWhoseRecordIsDamaged) {
  StoreOptions options;
  options.access = StoreAccess::write;
  options.settings.max_depth = 1;
  {
    const auto store = open_store(files_, "/run", options).value();
    for (std::uint64_t step = 1; step <= 4; ++step) ASSERT_TRUE(store->save(step, TestState(step).state()));
  }
  flip(path(1), static_cast<std::size_t>(files_.stat(path(1))->size_bytes) - 60);
  EXPECT_EQ(repair().damaged.size(), 3U);
  const Names lost = damaged_in(*open(), 2);
  EXPECT_FALSE(lost.empty());
  flip(RunLayout("/run").commit(2), 10);
  const RepairReport report = repair();
  EXPECT_TRUE(report.dropped.empty());
  ASSERT_EQ(report.damaged.size(), 3U);
  EXPECT_EQ(report.damaged[0].step, 2U);
  EXPECT_EQ(damaged_in(*open(), 2), lost);
}

TEST_F(DamagedStore, ADamagedCheckpointIsNoBaseAndAgesOut) {
  save_steps(8);
  flip(path(7), 70);
  EXPECT_EQ(repair().damaged.size(), 2U);
  const auto store = open(StoreAccess::write);
  EXPECT_FALSE(store->save(8, TestState(8).state()));
  const auto saved = store->save(9, TestState(9).state());
  ASSERT_TRUE(saved) << saved.error().message();
  EXPECT_EQ(saved->damage, std::nullopt);
  EXPECT_EQ(saved->base, 6U);
  const std::vector<Checkpoint> listed = open()->checkpoints().value();
  for (const Checkpoint& info : listed) {
    EXPECT_EQ(info.damage.has_value(), info.step == 7 || info.step == 8) << info.step;
  }
  Retention retention;
  retention.keep_last = 2;
  PruneOptions always;
  always.reencode = Reencode::always;
  const auto pruned = store->prune(retention, always);
  ASSERT_TRUE(pruned) << pruned.error().message();
  EXPECT_TRUE(pruned->rewritten.empty());
  EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{6, 7, 8, 9}));
  EXPECT_EQ(damaged_in(*store, 8), (Names{"weight"}));
  ASSERT_TRUE(store->save(10, TestState(10).state()));
  ASSERT_TRUE(store->prune(retention));
  EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{9, 10}));
  EXPECT_EQ(check_step(*store, 10, TestState(10)), "");
}

TEST_F(DamagedStore, RemovesADamagedCheckpointButNotTheLastWholeOne) {
  save_steps(3);
  flip(path(3), 70);
  repair();
  const auto store = open(StoreAccess::write);
  EXPECT_EQ(store->remove({1, 2}).error().kind(), ErrorKind::invalid_argument);
  ASSERT_TRUE(store->remove({3}));
  EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{1, 2}));
  ASSERT_TRUE(store->save(3, TestState(3).state()));
  EXPECT_EQ(check_step(*store, 3, TestState(3)), "");
  EXPECT_EQ(store->latest().value(), 3U);
}

TEST_F(DamagedStore, ARestoredFileMakesItWholeAgain) {
  save_steps(4);
  flip(path(3), 70);
  EXPECT_EQ(repair().damaged.size(), 2U);
  flip(path(3), 70);
  const RepairReport report = repair();
  EXPECT_TRUE(report.damaged.empty());
  EXPECT_EQ(report.mended.size(), 2U);
  expect_sound({1, 2, 3, 4});
}

TEST_F(DamagedStore, RebuildsALostCommitRecord) {
  save_steps(8);
  flip(path(6, "commit.json"), 40);
  EXPECT_FALSE(open()->checkpoints().value()[5].damage == std::nullopt);
  const auto report = repair();
  ASSERT_EQ(report.mended.size(), 1U);
  EXPECT_EQ(report.mended[0].step, 6U);
  EXPECT_TRUE(report.dropped.empty());
  expect_sound({1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_F(DamagedStore, RebuildsALostRecordThatOthersReferTo) {
  save_steps(5);
  ASSERT_TRUE(files_.remove(path(2, "commit.json")));
  // A writer that opens and prunes the store before the repair removes nothing.
  Retention retention;
  retention.keep_last = 9;
  ASSERT_TRUE(open(StoreAccess::write)->prune(retention));
  const auto report = repair();
  ASSERT_EQ(report.mended.size(), 1U);
  EXPECT_EQ(report.mended[0].step, 2U);
  EXPECT_TRUE(report.dropped.empty());
  expect_sound({1, 2, 3, 4, 5});
}

TEST_F(DamagedStore, KeepsDependantsOfAMissingFileAsDamaged) {
  save_steps(8);
  ASSERT_TRUE(files_.remove(path(5)));
  const auto report = repair();
  std::vector<std::uint64_t> dropped;
  for (const auto& entry : report.dropped) dropped.push_back(entry.step);
  EXPECT_EQ(dropped, (std::vector<std::uint64_t>{5}));
  ASSERT_EQ(report.damaged.size(), 3U);
  EXPECT_EQ(open()->latest().value(), 4U);
}

TEST_F(DamagedStore, DoesNotPreventSaving) {
  save_steps(7);
  flip(path(7), 70);
  const auto store = open(StoreAccess::write);
  const auto saved = store->save(8, TestState(8).state());
  ASSERT_TRUE(saved) << saved.error().message();
  ASSERT_TRUE(saved->damage);
  EXPECT_EQ(saved->damage->kind(), ErrorKind::corrupt);
  EXPECT_EQ(saved->links, 0U);
  EXPECT_EQ(check_step(*store, 8, TestState(8)), "");
}

TEST_F(DamagedStore, RepairLeavesANewerVersionAlone) {
  save_steps(2);
  const std::string sealed = seal_json("store", R"({"format":1,"id":"x"})");
  files_.plant("/run/bitsnap.json", as_byte_span(sealed));
  const auto before = files_.all_files();
  const auto repaired = repair_store(files_, "/run", {});
  ASSERT_FALSE(repaired);
  EXPECT_EQ(repaired.error().kind(), ErrorKind::unsupported);
  EXPECT_EQ(files_.all_files(), before);
}

}  // namespace
}  // namespace bitsnap::store
