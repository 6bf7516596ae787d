// Retention and rollback without failures: which steps are removed, which stay because others need them, and saving
// afterwards.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

std::uint64_t stored_bytes(os::FakeFileSystem& files) {
  std::uint64_t bytes = 0;
  for (const std::string& file : files.all_files()) bytes += files.stat(file)->size_bytes;
  return bytes;
}

TEST(StorePrune, StoresAFrozenBackboneOnceThroughKeyframesAndPrunes) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 2;
  const auto store = open(files, options);
  for (std::uint64_t step = 1; step <= 60; ++step) {
    TestState state(step);
    std::vector<std::byte> backbone(600'000);
    for (std::size_t i = 0; i < backbone.size(); ++i) backbone[i] = static_cast<std::byte>((i * i) >> 7);
    state.add("backbone", DType::u8, std::move(backbone));
    ASSERT_TRUE(store->save(step, state.state()));
    if (step % 5 == 0) {
      Retention retention;
      retention.keep_last = 3;
      ASSERT_TRUE(store->prune(retention));
    }
  }
  os::FakeFileSystem alone;
  const auto one = open(alone, options);
  TestState state(1);
  std::vector<std::byte> backbone(600'000);
  for (std::size_t i = 0; i < backbone.size(); ++i) backbone[i] = static_cast<std::byte>((i * i) >> 7);
  state.add("backbone", DType::u8, std::move(backbone));
  ASSERT_TRUE(one->save(1, state.state()));
  const std::uint64_t keyframe = stored_bytes(alone);
  EXPECT_LT(stored_bytes(files), keyframe + 200'000) << keyframe;
  EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{58, 59, 60}));
  EXPECT_TRUE(store->verify()->damages.empty());
}

TEST(StorePrune, RemovesOldStepsAndKeepsNeededFiles) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 12);  // keyframes 1 and 10
  Retention retention;
  retention.keep_last = 3;
  retention.keep_every = 4;
  const auto report = store->prune(retention).value();
  EXPECT_EQ(report.kept, (std::vector<std::uint64_t>{4, 8, 10, 11, 12}));
  expect_steps(*store, {4, 8, 10, 11, 12});
  std::vector<std::uint64_t> needed;
  for (const auto& entry : report.needed) needed.push_back(entry.step);
  EXPECT_EQ(needed, (std::vector<std::uint64_t>{1, 2, 3, 5, 6, 7}));
  ASSERT_EQ(report.removed.size(), 1U);
  EXPECT_EQ(report.removed[0].step, 9U);
  EXPECT_TRUE(store->verify()->damages.empty());
}

TEST(StorePrune, TellsWhatTheRunHolds) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 12);  // keyframes 1 and 10
  const RunUsage before = store->usage().value();
  EXPECT_EQ(before.checkpoints, 12U);
  EXPECT_EQ(before.held_bytes(), before.stored_bytes);
  EXPECT_TRUE(before.needed.empty());
  const auto report = store->prune({.keep = {4, 8}}, {.reencode = Reencode::never}).value();  // and the newest
  const RunUsage after = store->usage().value();
  EXPECT_EQ(after.checkpoints, 3U);
  EXPECT_EQ(after.held_bytes(), before.held_bytes() - report.removed_bytes);
  EXPECT_EQ(after.needed.size(), 8U);  // 1 to 3, 5 to 7, 10 and 11
  EXPECT_EQ(after.raw_bytes, before.raw_bytes / 4);
  EXPECT_EQ(report.held_bytes(), after.held_bytes());
  EXPECT_EQ(report.kept_bytes, after.stored_bytes);
  EXPECT_EQ(report.kept_raw_bytes, after.raw_bytes);
  // Also behind a checkpoint that is kept.
  std::vector<std::uint64_t> needed;
  const Checkpoint info = store->checkpoint(8).value();
  for (const auto& each : info.needed) needed.push_back(each.step);
  EXPECT_EQ(needed, (std::vector<std::uint64_t>{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(info.needed.front().bytes, after.needed.front().bytes);
}

TEST(StorePrune, RewritesDependantsToFreeTheRest) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 12);
  Retention retention;
  retention.keep = {4, 7, 8, 11};
  PruneOptions options;
  options.reencode = Reencode::always;
  const auto dry = [&] {
    PruneOptions dry_options = options;
    dry_options.dry_run = true;
    return store->prune(retention, dry_options).value();
  }();
  EXPECT_EQ(store->steps()->size(), 12U);
  const auto report = store->prune(retention, options);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_TRUE(report->needed.empty());
  EXPECT_EQ(report->removed.size(), dry.removed.size());
  EXPECT_EQ(report->rewritten.size(), dry.rewritten.size());
  expect_steps(*store, {4, 7, 8, 11, 12});
  EXPECT_TRUE(store->verify()->damages.empty());
  EXPECT_TRUE(store->verify()->strays.empty());
  save_steps(*store, 13, 20);
  expect_steps(*store, {4, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20});
}

TEST(StorePrune, SavesAfterTheUnneededKeyframeWasRemoved) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  Retention retention;
  retention.keep_last = 1;
  {
    const auto store = open(files);
    save_steps(*store, 1, 1);
    // This state has nothing in common with the previous one.
    TestState other;
    other.add("other", DType::u8, std::vector<std::byte>(9000, std::byte{7}));
    ASSERT_TRUE(store->save(2, other.state()));
    ASSERT_EQ(store->prune(retention)->removed.size(), 1U);
  }
  options.settings.base = BaseRule::keyframe;
  const auto store = open(files, options);
  for (std::uint64_t step = 3; step <= 5; ++step) {
    const auto saved = store->save(step, TestState(step).state());
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_FALSE(saved->damage) << saved->damage->message();
    EXPECT_TRUE(store->prune(retention));
  }
  expect_steps(*store, {5});
}

TEST(StorePrune, KeepsTheKeyframeForTheNextSave) {
  for (const std::uint64_t memory : {0U, 1U << 26}) {
    os::FakeFileSystem files;
    StoreOptions options = writing();
    options.settings.base = BaseRule::keyframe;
    options.settings.max_depth = 4;
    options.keep_base_bytes = memory;
    const auto store = open(files, options);
    Retention retention;
    retention.keep_last = 6;
    for (std::uint64_t step = 1; step <= 15; ++step) {
      const auto saved = store->save(step, TestState(step).state());
      ASSERT_TRUE(saved) << saved.error().message();
      EXPECT_FALSE(saved->damage) << saved->damage->message();
      EXPECT_EQ(saved->links, (step - 1) % 5);
      ASSERT_TRUE(store->prune(retention));
      EXPECT_EQ(check_step(*store, step, TestState(step)), "");
    }
  }
}

TEST(StorePrune, KeepsStepsThatUncommittedShardsReferTo) {
  for (const Reencode reencode : {Reencode::when_it_pays, Reencode::always}) {
    os::FakeFileSystem files;
    StoreOptions options;
    options.access = StoreAccess::shared;
    const auto store = open(files, options);
    for (std::uint64_t step = 1; step <= 3; ++step) {
      for (std::uint32_t shard = 0; shard < 2; ++shard) {
        ASSERT_TRUE(store->save_shard(step, {shard, 2, "x"}, TestState(step, 100 * shard).state()));
      }
      ASSERT_TRUE(store->commit(step, 2, "x").value());
    }
    ASSERT_TRUE(store->save_shard(4, {1, 2, "x"}, TestState(4, 100).state()));
    Retention retention;
    retention.keep_last = 1;
    PruneOptions pruning;
    pruning.reencode = reencode;
    ASSERT_TRUE(store->prune(retention, pruning));
    // A handle that opens the store to write meanwhile must keep them, too.
    ASSERT_TRUE(open(files)->prune(retention, pruning));
    ASSERT_TRUE(store->save_shard(4, {0, 2, "x"}, TestState(4, 0).state()));
    const auto committed = store->commit(4, 2, "x");
    ASSERT_TRUE(committed && *committed);
    EXPECT_EQ(difference(*store->snapshot(4, 0).value(), TestState(4, 0)), "");
    EXPECT_EQ(difference(*store->snapshot(4, 1).value(), TestState(4, 100)), "");
    EXPECT_TRUE(store->verify()->damages.empty());
  }
}

TEST(StorePrune, SavesStepsAgainAfterARollback) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 12);
  const auto refused = store->save(12, TestState(12).state());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  const auto report = store->rollback(7);
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->removed, (std::vector<std::uint64_t>{12, 11, 10, 9, 8}));
  expect_steps(*store, {1, 2, 3, 4, 5, 6, 7});
  save_steps(*store, 8, 12);
  expect_steps(*store, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
}

}  // namespace
}  // namespace bitsnap::store
