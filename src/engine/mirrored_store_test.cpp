// The parts together, as an agent has them: a store that is written through the mirror and coded against slots holds
// the files that any other store of these states holds, and its snapshots are in memory.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_testing.hpp"
#include "engine/mirror_file_system.hpp"
#include "engine/slot_chunks.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "restore/open_snapshot.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

using record::Bytes;
using store::TestState;

std::unique_ptr<Store> open(os::FileSystem& files) {
  StoreOptions options;
  options.access = StoreAccess::write;
  auto opened = store::open_store(files, "/run", options);
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

// What is offered to a store of a state that still lies in its slot.
store::BaseMaker slot_of(const std::shared_ptr<const std::vector<Bytes>>& slot, SnapshotId id,
                         std::vector<std::shared_ptr<const SlotChunks>>& made) {
  return [=, &made](std::shared_ptr<const Snapshot> snapshot) -> std::shared_ptr<const Base> {
    if (snapshot->id() != id) return nullptr;
    const std::vector<ConstByteSpan> spans(slot->begin(), slot->end());
    restore::offer_warm_chunks(*snapshot, made.emplace_back(std::make_shared<SlotChunks>(*snapshot, spans, slot)));
    return snapshot;
  };
}

TEST(MirroredStore, HoldsTheFilesOfAnyOtherStoreAndKeepsThemInMemory) {
  os::FakeFileSystem plain_disk;
  os::FakeFileSystem disk;
  os::FaultyFileSystem counted(disk);
  std::vector<std::pair<std::string, std::shared_ptr<const Blob>>> completed;
  MirrorFileSystem mirror(counted, [&](const std::string& path, const std::shared_ptr<const Blob>& blob) {
    completed.emplace_back(path, blob);
  });
  const auto plain = open(plain_disk);
  const auto mirrored = open(mirror);
  MemoryTier tier({.snapshots = 2});
  std::vector<std::shared_ptr<const SlotChunks>> bases;
  Training training;
  for (std::uint64_t step = 1; step <= 4; ++step) {
    training.step();
    ASSERT_TRUE(plain->save(step, training.state()));
    ASSERT_TRUE(mirrored->save(step, training.state()));
    ASSERT_EQ(completed.size(), step);
    const auto snapshot = mirrored->snapshot().value();
    MemorySnapshot made{step, snapshot->id(), completed.back().second, {}, true};
    for (const BaseReference& base : snapshot->bases()) made.needs.push_back(base.id);
    EXPECT_TRUE(tier.put(std::move(made)));
    store::offer_base(*mirrored, step, 0,
                      slot_of(std::make_shared<const std::vector<Bytes>>(training.slot()), snapshot->id(), bases));
  }
  EXPECT_EQ(snapshots(disk), snapshots(plain_disk));
  ASSERT_EQ(bases.size(), 3U);
  for (const auto& base : bases) {
    EXPECT_GT(base->found(), 0U);
    EXPECT_EQ(base->mismatches(), 0U);
  }
  EXPECT_EQ(training.difference(*tier.open(tier.newest()->id).value()), "");
  EXPECT_EQ(tier.newest()->links, 0U);
  // Of the snapshots nothing was read from the disk.
  for (const auto& step : counted.steps()) {
    if (step.operation == os::FileOperation::open) {
      EXPECT_FALSE(step.path.ends_with(".bsnap")) << step.path;
    }
  }
  mirror.forget("/run");
  EXPECT_EQ(training.difference(*mirrored->snapshot().value()), "");
  EXPECT_TRUE(mirrored->verify()->damages.empty());
}

TEST(MirroredStore, ForgetsWhatIsPrunedAndRolledBack) {
  os::FakeFileSystem disk;
  MirrorFileSystem mirror(disk);
  const auto mirrored = open(mirror);
  for (std::uint64_t step = 1; step <= 12; ++step) ASSERT_TRUE(mirrored->save(step, TestState(step).state()));
  Retention retention;
  retention.keep_last = 4;
  ASSERT_TRUE(mirrored->prune(retention, {.reencode = Reencode::always}));
  ASSERT_TRUE(mirrored->rollback(11));
  ASSERT_TRUE(mirrored->save(12, TestState(12, 7).state()));
  EXPECT_EQ(store::check_step(*mirrored, 11, TestState(11)), "");
  EXPECT_EQ(store::check_step(*mirrored, 12, TestState(12, 7)), "");
  std::uint64_t bytes = 0;
  for (const auto& [path, file] : snapshots(disk)) bytes += file.size();
  EXPECT_EQ(mirror.kept_bytes(), bytes);
}

TEST(MirroredStore, GoesOnAfterAWriteThatFailed) {
  for (const os::FileOperation operation :
       {os::FileOperation::create, os::FileOperation::append, os::FileOperation::sync, os::FileOperation::close}) {
    os::FakeFileSystem disk;
    os::FaultyFileSystem faulty(disk);
    MirrorFileSystem mirror(faulty);
    const auto mirrored = open(mirror);
    ASSERT_TRUE(mirrored->save(1, TestState(1).state()));
    faulty.reset();
    faulty.fail_at(operation, 0, {});
    const auto failed = mirrored->save(2, TestState(2).state());
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind(), ErrorKind::io);
    ASSERT_TRUE(mirrored->save(2, TestState(2, 5).state()));
    EXPECT_EQ(store::check_step(*mirrored, 1, TestState(1)), "");
    EXPECT_EQ(store::check_step(*mirrored, 2, TestState(2, 5)), "");
    // What was committed is on the disk, whatever memory has.
    disk.crash();
    MirrorFileSystem after(disk);
    const auto again = open(after);
    EXPECT_EQ(store::check_step(*again, 2, TestState(2, 5)), "");
  }
}

}  // namespace
}  // namespace bitsnap::engine
