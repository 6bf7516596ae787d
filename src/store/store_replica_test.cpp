// Equal shards of one checkpoint: their file is stored once, whatever is done with the store.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

constexpr std::uint32_t kReplicas = 3;

class ReplicaTest : public testing::TestWithParam<Destination> {
 protected:
  std::unique_ptr<Store> open(StoreAccess access = StoreAccess::read) {
    StoreOptions options;
    options.access = access;
    options.settings.max_depth = 3;
    return open_store(files_, kTestRun, options).value();
  }
  static ShardPlace place(std::uint32_t shard, const std::string& attempt) { return {shard, kReplicas, attempt}; }

  // The state of a rank; equal for all, except the rank `other`.
  static TestState state_of(std::uint64_t step, std::uint32_t rank, std::optional<std::uint32_t> other = {}) {
    return TestState(step, rank == other ? 1 : 0);
  }
  void save_all(std::uint64_t step, std::optional<std::uint32_t> other = {}, os::FileSystem* files = nullptr) {
    StoreOptions options;
    options.access = StoreAccess::shared;
    options.settings.max_depth = 3;
    for (const std::uint32_t rank : {1U, 0U, 2U}) {
      const auto store = open_store(files == nullptr ? files_ : *files, kTestRun, options).value();
      const auto saved = save_to(GetParam(), *store, step, place(rank, "a1"), state_of(step, rank, other));
      ASSERT_TRUE(saved) << saved.error().message();
    }
    ASSERT_TRUE(*open(StoreAccess::shared)->commit(step, kReplicas, "a1"));
  }

  CommitRecord record(std::uint64_t step, bool retired = false) {
    return read_commit_record(files_, RunLayout(kTestRun), step, retired).value();
  }
  // How many files the shards of a step have, by what the file system says.
  std::size_t file_count(std::uint64_t step, bool retired = false) {
    std::set<std::uint64_t> ids;
    for (const ShardFile& file : record(step, retired).shards) {
      ids.insert(files_.stat(RunLayout(kTestRun).step_file(step, file.file))->file_id);
    }
    return ids.size();
  }
  // The sizes that the log shows are those of the files.
  void expect_counted_once(std::uint64_t step, std::size_t files = 1) {
    EXPECT_EQ(file_count(step), files) << step;
    std::uint64_t bytes = files_.stat(RunLayout(kTestRun).commit(step))->size_bytes;
    std::set<std::uint64_t> seen;
    for (const ShardFile& file : record(step).shards) {
      const auto info = files_.stat(RunLayout(kTestRun).step_file(step, file.file)).value();
      if (seen.insert(info.file_id).second) bytes += info.size_bytes;
    }
    EXPECT_EQ(open()->checkpoint(step)->stored_bytes, bytes) << step;
  }
  void expect_sound(const std::vector<std::uint64_t>& steps, std::optional<std::uint32_t> other = {}) {
    const auto store = open();
    EXPECT_EQ(*store->steps(), steps);
    for (const std::uint64_t step : steps) {
      for (std::uint32_t rank = 0; rank < kReplicas; ++rank) {
        EXPECT_EQ(difference(*store->snapshot(step, rank).value(), state_of(step, rank, other)), "") << step;
      }
    }
    const auto verified = store->verify().value();
    EXPECT_TRUE(verified.damages.empty()) << verified.damages.front().error.message();
    EXPECT_TRUE(verified.strays.empty()) << verified.strays.front();
    EXPECT_EQ(check_files(files_), "");
  }

  os::FakeFileSystem files_;
};

TEST_P(ReplicaTest, EqualShardsHaveOneFileInTheWholeChain) {
  for (std::uint64_t step = 1; step <= 6; ++step) {
    save_all(step);
    expect_counted_once(step);
  }
  // Each rank is coded against its own shard of the step before.
  const CommitRecord third = record(3);
  for (std::uint32_t rank = 0; rank < kReplicas; ++rank) {
    for (const StepReference& reference : third.shards[rank].references) EXPECT_EQ(reference.shard, rank);
  }
  EXPECT_EQ(third.base, 2U);
  expect_sound({1, 2, 3, 4, 5, 6});
  const auto listed = open()->checkpoints().value();
  for (const Checkpoint& info : listed) {
    EXPECT_EQ(info.raw_bytes, listed.front().raw_bytes);
    EXPECT_EQ(info.stored_bytes, open()->checkpoint(info.step)->stored_bytes);
  }
}

TEST_P(ReplicaTest, OtherShardsHaveTheirOwnFile) {
  for (std::uint64_t step = 1; step <= 3; ++step) {
    save_all(step, 0);
    expect_counted_once(step, 2);
  }
  expect_sound({1, 2, 3}, 0);
}

TEST_P(ReplicaTest, WithoutLinksEachShardHasItsFile) {
  files_.refuse_links();
  save_all(1);
  save_all(2);
  expect_counted_once(2, kReplicas);
  expect_sound({1, 2});
}

TEST_P(ReplicaTest, AShardIsWrittenIfItsLinkFails) {
  for (const bool half_done : {false, true}) {
    os::FaultyFileSystem faulty(files_);
    faulty.fail_at(os::FileOperation::link, 0, {.half_done = half_done});
    const std::uint64_t step = half_done ? 2 : 1;
    save_all(step, {}, &faulty);
    EXPECT_EQ(faulty.failures(), 1U);
    expect_counted_once(step, 2);
  }
  save_all(3);
  expect_counted_once(3);
  expect_sound({1, 2, 3});
}

TEST_P(ReplicaTest, ADamagedFileIsNotSharedAndAMissingOneNeither) {
  const RunLayout layout(kTestRun);
  const auto store = open(StoreAccess::shared);
  for (const std::uint64_t step : {1U, 2U}) {
    const std::string path = layout.step_file(step, shard_file_name(1, kReplicas, "a1"));
    ASSERT_TRUE(save_to(GetParam(), *store, step, place(1, "a1"), TestState(step)));
    auto bytes = os::read_file(files_, path, 1 << 24).value();
    bytes[bytes.size() / 2] ^= std::byte{1};
    ASSERT_TRUE(files_.remove(path));
    if (step == 1) files_.plant(path, bytes);
    ASSERT_TRUE(save_to(GetParam(), *store, step, place(0, "a1"), TestState(step)));
    const auto own = files_.stat(layout.step_file(step, shard_file_name(0, kReplicas, "a1"))).value();
    EXPECT_TRUE(own.exists);
    EXPECT_NE(own.file_id, files_.stat(path)->file_id);
  }
}

TEST_P(ReplicaTest, OneOfTheShardsCountsIfAllAreLinks) {
  const auto store = open(StoreAccess::shared);
  for (const std::uint32_t rank : {0U, 1U, 2U, 0U}) {  // rank 0 saves again, and becomes a link, too
    ASSERT_TRUE(save_to(GetParam(), *store, 1, place(rank, "a1"), TestState(1)));
  }
  ASSERT_TRUE(*store->commit(1, kReplicas, "a1"));
  expect_counted_once(1);
  expect_sound({1});
}

TEST_P(ReplicaTest, PruningRewritesTheFileOnceAndKeepsItShared) {
  for (std::uint64_t step = 1; step <= 6; ++step) save_all(step);
  PruneOptions options;
  options.reencode = Reencode::always;
  Retention retention;
  retention.keep = {2, 4};
  const auto pruned = open(StoreAccess::write)->prune(retention, options);
  ASSERT_TRUE(pruned) << pruned.error().message();
  EXPECT_FALSE(pruned->rewritten.empty());
  expect_sound({2, 4, 6});
  for (const std::uint64_t step : {2U, 4U, 6U}) expect_counted_once(step);
  ASSERT_TRUE(open(StoreAccess::write)->rollback(4));
  expect_sound({2, 4});
  save_all(7);
  expect_counted_once(7);
  expect_sound({2, 4, 7});
}

TEST_P(ReplicaTest, ARepairFindsOutWhichFilesAreShared) {
  for (std::uint64_t step = 1; step <= 3; ++step) save_all(step, 0);
  const CommitRecord before = record(2);
  ASSERT_TRUE(files_.remove(RunLayout(kTestRun).commit(2)));
  ASSERT_TRUE(repair_store(files_, kTestRun, {}));
  ASSERT_EQ(record(2).shards.size(), kReplicas);
  for (std::uint32_t rank = 0; rank < kReplicas; ++rank) EXPECT_EQ(record(2).shards[rank].id, before.shards[rank].id);
  expect_counted_once(2, 2);
  expect_sound({1, 2, 3}, 0);
}

INSTANTIATE_TEST_SUITE_P(Both, ReplicaTest, testing::Values(Destination::disk, Destination::memory),
                         [](const auto& test) { return test.param == Destination::disk ? "Disk" : "Memory"; });

}  // namespace
}  // namespace bitsnap::store
