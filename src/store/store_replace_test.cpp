// Saving the newest step again as another attempt, without failures.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

CommitOptions replacing() { return {.labels = {}, .replace = true}; }

Result<Checkpoint> replace(Store& store, std::uint64_t step, std::uint64_t seed) {
  return store.save(step, TestState(step, seed).state(), {1, nullptr}, nullptr, replacing());
}

std::vector<std::string> files_of_step(os::FakeFileSystem& files, std::uint64_t step) {
  return files.list_directory(RunLayout("/run").step_directory(step)).value();
}

TEST(StoreReplace, TheNewCheckpointTakesThePlaceOfTheOldOne) {
  for_each_base([](const StoreOptions& options) {
    os::FakeFileSystem files;
    const auto store = open(files, options);
    save_steps(*store, 1, 3);
    for (const std::uint64_t seed : {7U, 8U}) {
      const auto replaced = replace(*store, 3, seed);
      ASSERT_TRUE(replaced) << replaced.error().message();
      EXPECT_EQ(replaced->base, options.settings.base == BaseRule::previous ? 2U : 1U);
      EXPECT_FALSE(replaced->damage);
      EXPECT_EQ(check_step(*store, 3, TestState(3, seed)), "");
      EXPECT_EQ(files_of_step(files, 3).size(), 2U);
    }
    const auto next = store->save(4, TestState(4, 8).state());
    ASSERT_TRUE(next) << next.error().message();
    EXPECT_EQ(next->base, options.settings.base == BaseRule::previous ? 3U : 1U);
    EXPECT_FALSE(next->damage);
    EXPECT_EQ(check_step(*store, 4, TestState(4, 8)), "");
    EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
    EXPECT_TRUE(store->verify()->damages.empty());
    EXPECT_TRUE(store->verify()->strays.empty());
  });
}

TEST(StoreReplace, OnlyTheNewestStepAndOnlyIfAsked) {
  os::FakeFileSystem files;
  const auto store = open(files);
  ASSERT_TRUE(replace(*store, 1, 0));  // a new step
  ASSERT_TRUE(replace(*store, 2, 0));
  EXPECT_EQ(replace(*store, 1, 5).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(store->save(2, TestState(2, 5).state()).error().kind(), ErrorKind::invalid_argument);
  expect_steps(*store, {1, 2});
}

TEST(StoreReplace, AnOpenSnapshotStaysAndReadersGetTheNewOne) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 2);
  const auto reader = open(files, {});
  const auto before = reader->snapshot(2).value();
  ASSERT_TRUE(replace(*store, 2, 5));
  EXPECT_EQ(difference(*before, TestState(2)), "");
  EXPECT_EQ(check_step(*reader, 2, TestState(2, 5)), "");
}

TEST(StoreReplace, KeepsLabelsAndAddsOthers) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 1);
  ASSERT_TRUE(store->save(2, TestState(2).state(), {}, nullptr, {.labels = {"a", "b"}}));
  EXPECT_EQ(replace(*store, 2, 5)->labels, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(store->labels()->size(), 2U);
  const auto again = store->save(2, TestState(2, 6).state(), {}, nullptr, {.labels = {"b", "c"}, .replace = true});
  EXPECT_EQ(again->labels, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(store->checkpoint(2)->labels, again->labels);
}

TEST(StoreReplace, AFailedCheckLeavesTheOldCheckpoint) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 2);
  const auto refuse = [](const Snapshot&) -> Result<void> { return fail(ErrorKind::corrupt, "no"); };
  EXPECT_FALSE(store->save(2, TestState(2, 5).state(), {}, refuse, replacing()));
  expect_steps(*store, {1, 2});
  EXPECT_EQ(files_of_step(files, 2).size(), 2U);
  ASSERT_TRUE(replace(*store, 2, 6));
  EXPECT_EQ(check_step(*store, 2, TestState(2, 6)), "");
}

class StoreReplaceByRanks : public testing::Test {
 protected:
  static StoreOptions shared() {
    StoreOptions options = writing();
    options.access = StoreAccess::shared;
    return options;
  }
  void save(std::uint64_t step, const std::string& attempt, std::uint64_t seed, bool replace) {
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      const auto saved =
          rank_->save_shard(step, {shard, 2, attempt}, TestState(step, seed + shard).state(), {1, nullptr}, replace);
      ASSERT_TRUE(saved) << saved.error().message();
    }
  }
  std::string wrong(std::uint64_t step, std::uint64_t seed) {
    std::string all;
    for (std::uint32_t shard = 0; shard < 2; ++shard) {
      const auto snapshot = rank_->snapshot(step, shard);
      all += snapshot ? difference(**snapshot, TestState(step, seed + shard)) : snapshot.error().message();
    }
    return all;
  }

  os::FakeFileSystem files_;
  std::unique_ptr<Store> rank_ = open(files_, shared());
};

TEST_F(StoreReplaceByRanks, AnotherAttemptReplacesTheNewest) {
  for (const std::uint64_t step : {1U, 2U}) {
    save(step, "a", 0, false);
    ASSERT_TRUE(rank_->commit(step, 2, "a"));
  }
  EXPECT_FALSE(rank_->save_shard(2, {0, 2, "a"}, TestState(2).state(), {}, true));
  EXPECT_FALSE(rank_->save_shard(2, {0, 2, "b"}, TestState(2).state()));
  ASSERT_TRUE(rank_->save_shard(2, {0, 2, "b"}, TestState(2, 4).state(), {1, nullptr}, true));
  const auto early = rank_->commit(2, 2, "b", replacing());
  ASSERT_TRUE(early) << early.error().message();
  EXPECT_EQ(early->missing, std::vector<std::uint32_t>{1});
  EXPECT_EQ(wrong(2, 0), "");
  // Shards that wait stay, with their base.
  const auto pruned = rank_->prune({.keep_last = 1});
  ASSERT_TRUE(pruned) << pruned.error().message();
  EXPECT_TRUE(pruned->strays.empty());
  EXPECT_TRUE(open(files_)->prune({.keep_last = 1})->strays.empty());
  ASSERT_TRUE(rank_->save_shard(2, {1, 2, "b"}, TestState(2, 5).state(), {1, nullptr}, true));
  EXPECT_FALSE(rank_->commit(2, 2, "b"));
  EXPECT_EQ(wrong(2, 0), "");
  const auto committed = rank_->commit(2, 2, "b", replacing());
  ASSERT_TRUE(committed) << committed.error().message();
  ASSERT_TRUE(*committed);
  EXPECT_EQ(wrong(2, 4), "");
  EXPECT_EQ(files_of_step(files_, 2).size(), 4U);  // two shards, the commit record and the tensor index
  EXPECT_TRUE(*rank_->commit(2, 2, "b", replacing()));
  EXPECT_TRUE(*rank_->commit(2, 2, "b"));
  save(3, "c", 4, false);
  ASSERT_TRUE(*rank_->commit(3, 2, "c"));
  EXPECT_EQ(wrong(3, 4), "");
}

TEST_F(StoreReplaceByRanks, ShardsOfALaterStepThatNeedTheOldOneCannotBeCommitted) {
  for (const std::uint64_t step : {1U, 2U}) {
    save(step, "a", 0, false);
    ASSERT_TRUE(rank_->commit(step, 2, "a"));
  }
  save(3, "a", 0, false);
  save(2, "b", 4, true);
  ASSERT_TRUE(*rank_->commit(2, 2, "b", replacing()));
  EXPECT_EQ(rank_->commit(3, 2, "a").error().kind(), ErrorKind::corrupt);
  save(3, "b", 4, false);
  ASSERT_TRUE(*rank_->commit(3, 2, "b"));
  EXPECT_EQ(wrong(2, 4) + wrong(3, 4), "");
}

}  // namespace
}  // namespace bitsnap::store
