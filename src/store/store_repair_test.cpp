// Damage of every kind: what verification reports, and what a repair saves.
#include <gtest/gtest.h>

#include <algorithm>
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
      for (const std::string& other : all) {
        copy.plant(other, os::read_file(files_, other, 1 << 24).value());
      }
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
      EXPECT_EQ(steps.size(), repaired->checkpoints);
      EXPECT_EQ(steps.size() + repaired->dropped.size(), 6U);
      for (const std::uint64_t step : steps) {
        EXPECT_EQ(check_step(**again, step, TestState(step)), "") << file << " at " << at;
      }
      const auto clean = (*again)->verify().value();
      EXPECT_TRUE(clean.damages.empty());
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
  ASSERT_EQ(report.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].step, 4U);
  EXPECT_EQ(dry.dropped.size(), 1U);
  EXPECT_EQ(report.dropped[0].moved_to, "damaged/0000000004");
  EXPECT_TRUE(files_.stat("/run/damaged/0000000004/commit.json")->exists);
  expect_sound({1, 2, 3, 5, 6, 7, 8});
}

TEST_F(DamagedStore, RebuildsALostCommitRecord) {
  save_steps(8);
  flip(path(6, "commit.json"), 40);
  EXPECT_FALSE(open()->list().value()[5].damage == std::nullopt);
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

TEST_F(DamagedStore, DropsDependantsOfAMissingFile) {
  save_steps(8);
  ASSERT_TRUE(files_.remove(path(5)));
  const auto report = repair();
  std::vector<std::uint64_t> dropped;
  for (const auto& entry : report.dropped) dropped.push_back(entry.step);
  EXPECT_EQ(dropped, (std::vector<std::uint64_t>{5, 6, 7, 8}));
  expect_sound({1, 2, 3, 4});
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
