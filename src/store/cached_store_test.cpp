// A store as an agent uses it: a save that is encoded in memory and then published writes the same bytes as any other
// save, its base is read from memory, and the disk has the last word.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "restore/decoded_state.hpp"
#include "store/base_cache.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::store {
namespace {

using restore::DecodedState;
using save::Bytes;

std::unique_ptr<Store> open_cached(os::FileSystem& files, std::shared_ptr<BaseCache> cache = nullptr,
                                   StoreAccess access = StoreAccess::write) {
  StoreOptions options;
  options.access = access;
  auto opened = open_store(files, "/run", options, std::move(cache));
  EXPECT_TRUE(opened) << opened.error().message();
  return opened ? std::move(*opened) : nullptr;
}

std::map<std::string, Bytes> snapshots(os::FakeFileSystem& files) {
  std::map<std::string, Bytes> found;
  for (const std::string& path : files.all_files()) {
    if (path.ends_with(".bsnap")) found[path] = os::read_file(files, path, UINT64_MAX).value();
  }
  return found;
}

// Encodes in memory, keeps the file in the cache and publishes it, as an agent does.
Result<void> save_through_memory(Store& store, BaseCache& cache, std::uint64_t step, const State& state,
                                 const std::optional<ShardPlace>& place = std::nullopt) {
  Store::Impl& impl = Store::Impl::of(store);
  auto save = impl.begin(step, place);
  if (!save) return tl::unexpected(save.error());
  if (Result<void> encoded = impl.encode(*save, state, {}, Destination::memory); !encoded) return encoded;
  if (save->blob != nullptr) {
    CachedSnapshot made{step, save->file.id, save->blob, {}, true};
    for (const BaseReference& base : save->snapshot->bases()) made.needs.push_back(base.id);
    cache.put(std::move(made));
  }
  return impl.publish(*save);
}

bool touches_snapshot(const os::FaultyFileSystem::Step& step) {
  return step.operation != os::FileOperation::stat && step.path.ends_with(".bsnap");
}

TEST(CachedStore, WritesTheSameFilesAndReadsNone) {
  os::FakeFileSystem plain_disk;
  os::FakeFileSystem disk;
  os::FaultyFileSystem counted(disk);
  const auto cache = std::make_shared<BaseCache>(BaseCache::Limits{.snapshots = 2});
  const auto plain = open_cached(plain_disk);
  const auto cached = open_cached(counted, cache);
  std::vector<std::shared_ptr<DecodedState>> slots;
  std::vector<std::vector<Bytes>> memory;
  memory.reserve(4);
  Training training;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    training.step();
    ASSERT_TRUE(plain->save(step, training.state()));
    ASSERT_TRUE(save_through_memory(*cached, *cache, step, training.state()));
    const auto snapshot = cache->open(cache->newest()->id).value();
    memory.push_back(training.slot());
    const std::vector<ConstByteSpan> spans(memory.back().begin(), memory.back().end());
    cache->set_decoded(snapshot->id(), slots.emplace_back(std::make_shared<DecodedState>(*snapshot, spans, nullptr)));
  }
  EXPECT_EQ(snapshots(disk), snapshots(plain_disk));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(slots[i]->found(), 0U);
    EXPECT_EQ(slots[i]->mismatches(), 0U);
  }
  EXPECT_EQ(training.difference(*cache->open(cache->newest()->id).value()), "");
  EXPECT_EQ(cache->newest()->links, 0U);
  for (const auto& step : counted.steps()) {
    if (step.operation == os::FileOperation::open) {
      EXPECT_FALSE(step.path.ends_with(".bsnap")) << step.path;
    }
  }
  EXPECT_EQ(training.difference(*cached->snapshot().value()), "");
  EXPECT_TRUE(cached->verify()->damages.empty());
}

TEST(CachedStore, CodesShardsAgainstSlotsOfTheirRanks) {
  os::FakeFileSystem plain_disk;
  os::FakeFileSystem disk;
  const std::shared_ptr<BaseCache> caches[] = {std::make_shared<BaseCache>(), std::make_shared<BaseCache>()};
  std::vector<std::shared_ptr<DecodedState>> slots;
  std::vector<std::vector<Bytes>> memory;
  memory.reserve(8);
  Training trainings[] = {Training(1), Training(2)};
  for (std::uint64_t step = 1; step <= 3; ++step) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      Training& training = trainings[rank];
      training.step();
      const ShardPlace place{rank, 2, "a"};
      ASSERT_TRUE(open_cached(plain_disk, nullptr, StoreAccess::shared)->save_shard(step, place, training.state()));
      const auto cached = open_cached(disk, caches[rank], StoreAccess::shared);
      ASSERT_TRUE(save_through_memory(*cached, *caches[rank], step, training.state(), place));
      const auto snapshot = caches[rank]->open(caches[rank]->newest()->id).value();
      memory.push_back(training.slot());
      const std::vector<ConstByteSpan> spans(memory.back().begin(), memory.back().end());
      slots.push_back(std::make_shared<DecodedState>(*snapshot, spans, nullptr));
      caches[rank]->set_decoded(snapshot->id(), slots.back());
    }
    ASSERT_TRUE(open_cached(plain_disk, nullptr, StoreAccess::shared)->commit(step, 2, "a").value());
    ASSERT_TRUE(open_cached(disk, nullptr, StoreAccess::shared)->commit(step, 2, "a").value());
  }
  EXPECT_EQ(snapshots(disk), snapshots(plain_disk));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_GT(slots[i]->found(), 0U);
    EXPECT_EQ(slots[i]->mismatches(), 0U);
  }
}

TEST(CachedStore, DecodesTheBaseIfItsSlotWasOverwritten) {
  os::FakeFileSystem plain_disk;
  os::FakeFileSystem disk;
  const auto cache = std::make_shared<BaseCache>();
  const auto plain = open_cached(plain_disk);
  const auto cached = open_cached(disk, cache);
  Training training;
  ASSERT_TRUE(plain->save(1, training.state()));
  ASSERT_TRUE(save_through_memory(*cached, *cache, 1, training.state()));
  Training other = training;
  other.scribble();
  const std::vector<Bytes> memory = other.slot();
  const std::vector<ConstByteSpan> spans(memory.begin(), memory.end());
  const auto snapshot = cache->open(cache->newest()->id).value();
  const auto slot = std::make_shared<DecodedState>(*snapshot, spans, nullptr);
  cache->set_decoded(snapshot->id(), slot);
  training.step();
  ASSERT_TRUE(plain->save(2, training.state()));
  ASSERT_TRUE(save_through_memory(*cached, *cache, 2, training.state()));
  EXPECT_EQ(snapshots(disk), snapshots(plain_disk));
  EXPECT_GT(slot->mismatches(), 0U);
}

// The files move to the disk at a limit of their size, and then the disk crashes.
TEST(CachedStore, WritesTheSameFilesWithAnyRoomInMemory) {
  os::FakeFileSystem plain_disk;
  Training plain_training;
  {
    const auto plain = open_cached(plain_disk);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      plain_training.step();
      ASSERT_TRUE(plain->save(step, plain_training.state()));
    }
  }
  std::uint64_t largest = 0;
  for (const auto& [path, bytes] : snapshots(plain_disk)) largest = std::max<std::uint64_t>(largest, bytes.size());
  for (std::uint64_t sixteenths = 0; sixteenths <= 32; sixteenths += takes_samples() ? 4U : 1U) {
    os::FakeFileSystem disk;
    const BaseCache::Limits limits{.snapshots = 2, .bytes = sixteenths * largest / 16};
    const auto cache = std::make_shared<BaseCache>(limits);
    const auto cached = open_cached(disk, cache);
    Training training;
    for (std::uint64_t step = 1; step <= 4; ++step) {
      training.step();
      ASSERT_TRUE(save_through_memory(*cached, *cache, step, training.state()));
      EXPECT_LE(cache->bytes(), limits.bytes);
    }
    EXPECT_EQ(snapshots(disk), snapshots(plain_disk));
    disk.crash();
    const auto again = open_cached(disk);
    EXPECT_EQ(again->steps().value(), (std::vector<std::uint64_t>{1, 2, 3, 4}));
    EXPECT_EQ(training.difference(*again->snapshot().value()), "");
  }
}

TEST(CachedStore, EncodingWritesNoSnapshot) {
  os::FakeFileSystem disk;
  os::FaultyFileSystem files(disk);
  const auto cache = std::make_shared<BaseCache>();
  const auto cached = open_cached(files, cache);
  ASSERT_TRUE(save_through_memory(*cached, *cache, 1, TestState(1).state()));
  files.reset();
  Store::Impl& impl = Store::Impl::of(*cached);
  {
    auto save = impl.begin(2, std::nullopt);
    ASSERT_TRUE(save);
    ASSERT_TRUE(impl.encode(*save, TestState(2).state(), {}, Destination::memory));
    for (const auto& step : files.steps()) EXPECT_FALSE(touches_snapshot(step)) << step.path;
    EXPECT_FALSE(disk.stat("/run/checkpoints/0000000002")->exists);
    EXPECT_EQ(difference(*save->snapshot, TestState(2)), "");
  }
  // A save that is begun but not published leaves no trace.
  EXPECT_EQ(cached->steps().value(), std::vector<std::uint64_t>{1});
  ASSERT_TRUE(save_through_memory(*cached, *cache, 2, TestState(2, 7).state()));
  EXPECT_EQ(check_step(*cached, 2, TestState(2, 7)), "");
}

TEST(CachedStore, ContinuesAfterPrunesAndRollbacks) {
  os::FakeFileSystem disk;
  const auto cache = std::make_shared<BaseCache>(BaseCache::Limits{.snapshots = 12});
  const auto cached = open_cached(disk, cache);
  const auto save = [&](std::uint64_t step, std::uint64_t seed = 0) {
    ASSERT_TRUE(save_through_memory(*cached, *cache, step, TestState(step, seed).state()));
    EXPECT_EQ(check_step(*cached, step, TestState(step, seed)), "");
  };
  for (std::uint64_t step = 1; step <= 12; ++step) save(step);
  Retention retention;
  retention.keep_last = 4;
  ASSERT_TRUE(cached->prune(retention, {.reencode = Reencode::always}));
  ASSERT_TRUE(cached->rollback(11));
  save(12, 7);
  save(13, 7);
  EXPECT_EQ(check_step(*cached, 11, TestState(11)), "");
  EXPECT_TRUE(cached->verify()->damages.empty());
}

void check_failed_write(os::FileOperation operation, const BaseCache::Limits& limits) {
  os::FakeFileSystem disk;
  os::FaultyFileSystem faulty(disk);
  const auto cache = std::make_shared<BaseCache>(limits);
  const auto cached = open_cached(faulty, cache);
  ASSERT_TRUE(save_through_memory(*cached, *cache, 1, TestState(1).state()));
  faulty.reset();
  faulty.fail_at(operation, 0, {});
  const auto failed = save_through_memory(*cached, *cache, 2, TestState(2).state());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::io);
  if (limits.bytes > 0) {  // still in memory
    EXPECT_EQ(difference(*cache->open(cache->newest()->id).value(), TestState(2)), "");
  }
  ASSERT_TRUE(save_through_memory(*cached, *cache, 2, TestState(2, 5).state()));
  EXPECT_EQ(check_step(*cached, 1, TestState(1)), "");
  EXPECT_EQ(check_step(*cached, 2, TestState(2, 5)), "");
  // Committed checkpoints are on disk, whatever the cache holds.
  disk.crash();
  EXPECT_EQ(check_step(*open_cached(disk), 2, TestState(2, 5)), "");
}

TEST(CachedStore, ContinuesAfterAFailedWrite) {
  for (const os::FileOperation operation :
       {os::FileOperation::create, os::FileOperation::append, os::FileOperation::sync, os::FileOperation::close}) {
    for (const std::uint64_t bytes : {UINT64_MAX, std::uint64_t{0}}) check_failed_write(operation, {.bytes = bytes});
  }
}

}  // namespace
}  // namespace bitsnap::store
