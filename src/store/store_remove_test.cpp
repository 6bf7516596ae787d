// Removing checkpoints by their steps: which steps go, which files stay for others, and saving afterwards.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

std::vector<std::uint64_t> steps_of(const auto& entries) {
  std::vector<std::uint64_t> steps;
  for (const auto& entry : entries) steps.push_back(entry.step);
  return steps;
}

TEST(StoreRemove, RemovesTheseStepsAndRetiresWhatOthersNeed) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 6);
  const auto report = store->remove({6, 3, 3}, {.reencode = Reencode::never}).value();
  EXPECT_EQ(report.kept, (std::vector<std::uint64_t>{1, 2, 4, 5}));
  EXPECT_EQ(steps_of(report.removed), std::vector<std::uint64_t>{6});
  EXPECT_EQ(steps_of(report.needed), std::vector<std::uint64_t>{3});
  expect_steps(*store, {1, 2, 4, 5});
  const auto rest = store->remove({4, 5}).value();
  EXPECT_EQ(steps_of(rest.removed), (std::vector<std::uint64_t>{3, 4, 5}));
  expect_steps(*store, {1, 2});
  EXPECT_TRUE(store->verify()->damages.empty());
}

TEST(StoreRemove, RewritesOthersIfAsked) {
  os::FakeFileSystem files;
  const auto store = open(files);
  save_steps(*store, 1, 4);
  const PruneOptions dry{.reencode = Reencode::always, .dry_run = true};
  EXPECT_EQ(steps_of(store->remove({1, 4}, dry)->rewritten), (std::vector<std::uint64_t>{2, 3}));
  expect_steps(*store, {1, 2, 3, 4});
  const auto report = store->remove({1, 4}, {.reencode = Reencode::always}).value();
  EXPECT_EQ(steps_of(report.removed), (std::vector<std::uint64_t>{1, 4}));
  EXPECT_EQ(steps_of(report.needed), std::vector<std::uint64_t>());
  expect_steps(*store, {2, 3});
}

TEST(StoreRemove, TheNextSaveIsCodedAgainstWhatIsTheNewestThen) {
  for_each_base([](const StoreOptions& options) {
    os::FakeFileSystem files;
    const auto store = open(files, options);
    save_steps(*store, 1, 5);
    ASSERT_TRUE(store->remove({1, 4, 5}));
    const auto saved = store->save(4, TestState(4).state());
    ASSERT_TRUE(saved) << saved.error().message();
    EXPECT_EQ(saved->base, options.settings.base == BaseRule::previous ? 3U : 1U);
    EXPECT_FALSE(saved->damage);
    expect_steps(*store, {2, 3, 4});
  });
}

TEST(StoreRemove, NamesMissingStepsAndChangesNothing) {
  os::FakeFileSystem files;
  const auto store = open(files);
  EXPECT_EQ(store->remove({1}).error().message(), "/run: step 1 not found; the store has no checkpoints");
  EXPECT_TRUE(store->remove({}));
  save_steps(*store, 1, 3);
  const auto missing = store->remove({2, 7});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind(), ErrorKind::not_found);
  EXPECT_EQ(missing.error().message(), "/run: step 7 not found; nearby are 2 and 3");
  const auto all = store->remove({1, 2, 3});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().kind(), ErrorKind::invalid_argument);
  EXPECT_TRUE(store->remove({}).value().removed.empty());
  expect_steps(*store, {1, 2, 3});
}

TEST(StoreRemove, LeavesACheckpointThatCanBeRead) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 0;
  const auto store = open(files, options);
  save_steps(*store, 1, 3);
  ASSERT_TRUE(files.remove(RunLayout("/run").step_file(1, shard_file_name(0, 1, ""))));
  ASSERT_TRUE(files.remove(RunLayout("/run").step_file(2, shard_file_name(0, 1, ""))));
  EXPECT_EQ(store->remove({3}).error().kind(), ErrorKind::invalid_argument);
  ASSERT_TRUE(store->remove({1}));
  EXPECT_EQ(store->steps().value(), (std::vector<std::uint64_t>{2, 3}));
}

TEST(StoreRemove, ShardsThatWaitKeepTheirBases) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.access = StoreAccess::shared;
  const auto store = open(files, options);
  for (const std::uint64_t step : {1U, 2U}) {
    ASSERT_TRUE(store->save_shard(step, {0, 1, "a"}, TestState(step).state()));
    ASSERT_TRUE(store->commit(step, 1, "a"));
  }
  ASSERT_TRUE(store->save_shard(3, {0, 1, "a"}, TestState(3).state()));
  const auto report = store->remove({2}).value();
  EXPECT_EQ(steps_of(report.needed), std::vector<std::uint64_t>{2});
  EXPECT_EQ(store->steps().value(), std::vector<std::uint64_t>{1});
  const auto committed = store->commit(3, 1, "a");
  ASSERT_TRUE(committed && *committed);
  expect_steps(*store, {1, 3});
}

}  // namespace
}  // namespace bitsnap::store
