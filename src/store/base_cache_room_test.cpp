// BaseCache::Room: what is dropped for a file that is being written, and what must stay.
#include <gtest/gtest.h>

#include "os/file_system_fake.hpp"
#include "store/base_cache.hpp"
#include "store/published_file.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::store {
namespace {

class BaseCacheRoomTest : public ::testing::Test {
 protected:
  // Puts a file of `bytes` bytes; with `publish`, also writes it to the disk.
  std::shared_ptr<const Blob> put(std::uint64_t step, std::size_t bytes, const std::vector<std::uint64_t>& needs = {},
                                  bool publish = false) {
    const save::Bytes content = save::random_bytes(bytes, static_cast<unsigned>(step));
    CachedSnapshot snapshot{step, {step, 0}, to_blob(content), {}, publish};
    for (const std::uint64_t need : needs) snapshot.needs.push_back({need, 0});
    const std::shared_ptr<const Blob> blob = snapshot.blob;
    cache_.put(std::move(snapshot));
    if (publish) this->publish(step, content, *blob);
    return blob;
  }

  void publish(std::uint64_t step, const save::Bytes& content, const Blob& blob) {
    const auto file = disk_.create(path(step)).value();
    EXPECT_TRUE(file->append(content));
    EXPECT_TRUE(file->close());
    cache_.note_published(unowned(disk_), path(step), blob);
  }

  static std::string path(std::uint64_t step) { return "/" + std::to_string(step); }

  [[nodiscard]] std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> steps;
    for (const auto& [step, attempt] : cache_.attempts()) steps.push_back(step);
    return steps;
  }

  using Steps = std::vector<std::uint64_t>;
  std::uint64_t available_ = UINT64_MAX;
  os::FakeFileSystem disk_;
  BaseCache cache_{{.snapshots = 8, .bytes = 100}, {}, [this]() -> Result<os::AvailableMemory> {
                     return os::AvailableMemory{available_, 0, "a limit"};
                   }};
};

TEST_F(BaseCacheRoomTest, AFileThatIsWrittenCountsAgainstTheLimit) {
  put(1, 40);
  put(2, 40);
  {
    BaseCache::Room room(cache_);
    EXPECT_TRUE(room.take(20));
    EXPECT_EQ(steps(), (Steps{1, 2}));
    EXPECT_TRUE(room.take(21));  // drops the older step
    EXPECT_EQ(steps(), Steps{2});
    EXPECT_TRUE(room.take(60));
    const Result<void> taken = room.take(61);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().kind(), ErrorKind::resource_exhausted);
    EXPECT_EQ(steps(), Steps{2});
  }
  BaseCache::Room next(cache_);
  EXPECT_TRUE(next.take(60));
}

TEST_F(BaseCacheRoomTest, AWrittenFileCountsWhileAnyoneHoldsIt) {
  std::shared_ptr<const Blob> written = to_blob(save::Bytes(90));
  {
    BaseCache::Room room(cache_);
    EXPECT_TRUE(room.take(90));
    room.finish(written);
  }
  BaseCache::Room next(cache_);
  EXPECT_FALSE(next.take(11));
  written.reset();
  EXPECT_TRUE(next.take(100));
}

TEST_F(BaseCacheRoomTest, OnlyASnapshotThatIsElsewhereGoesAsTheNewest) {
  for (const bool is_published : {false, true}) {
    put(1, 40, {}, is_published);
    put(2, 40, {1}, is_published);
    BaseCache::Room room(cache_);
    EXPECT_EQ(room.take(100).has_value(), is_published);
    EXPECT_EQ(steps(), is_published ? Steps{} : (Steps{1, 2}));
  }
  put(3, 40);
  put(4, 40, {3});
  BaseCache::Room room(cache_);
  cache_.set_restorable(SnapshotId{3, 0});
  EXPECT_FALSE(room.take(100));
  cache_.set_restorable(SnapshotId{4, 0});
  EXPECT_TRUE(room.take(100));
  EXPECT_EQ(steps(), Steps{});
}

TEST_F(BaseCacheRoomTest, AShardOfAnotherCommitIsNoReplacementForTheNewest) {
  put(1, 40, {}, true);
  // The same content again. The file of step 1 may be pruned before this one is published.
  cache_.put({2, {1, 0}, to_blob(save::random_bytes(40, 1)), {}, false});
  {
    BaseCache::Room room(cache_);
    EXPECT_FALSE(room.take(100));
  }
  // One of several shards, whose checkpoint is not committed yet.
  const save::Bytes content = save::random_bytes(40, 3);
  CachedSnapshot shard{3, {3, 0}, to_blob(content), {}, true};
  shard.attempt = "attempt";
  std::shared_ptr<const Blob> blob = shard.blob;
  cache_.put(std::move(shard));
  publish(3, content, *blob);
  blob.reset();
  BaseCache::Room room(cache_);
  EXPECT_FALSE(room.take(100));
  cache_.note_committed(3);
  EXPECT_TRUE(room.take(100));
}

TEST_F(BaseCacheRoomTest, FilesInUseMayExceedTheLimitForAWhile) {
  std::shared_ptr<const Blob> in_use = put(1, 60, {}, true);
  BaseCache::Room room(cache_, true);
  EXPECT_TRUE(room.take(100));
  EXPECT_FALSE(room.take(101));
  BaseCache::Room strict(cache_);
  EXPECT_FALSE(strict.take(100));
}

TEST_F(BaseCacheRoomTest, FilesInUseStayAsTheirMemoryWouldNotReturn) {
  const std::shared_ptr<const Blob> in_use = put(1, 40);
  put(2, 40);
  BaseCache::Room room(cache_);
  EXPECT_FALSE(room.take(21));
  EXPECT_EQ(steps(), (Steps{1, 2}));
}

TEST_F(BaseCacheRoomTest, LeavesMemoryOfTheSystemFree) {
  cache_.set_limits({.snapshots = 8, .free_bytes = 1000});
  put(1, 40);
  put(2, 40);
  available_ = Blob::kPieceBytes + 1010;
  BaseCache::Room room(cache_);
  EXPECT_TRUE(room.take(10));
  available_ = 0;  // the system is asked again after a piece
  EXPECT_TRUE(room.take(Blob::kPieceBytes + 10));
  EXPECT_EQ(steps(), (Steps{1, 2}));
  const Result<void> taken = room.take(Blob::kPieceBytes + 11);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().kind(), ErrorKind::resource_exhausted);
  EXPECT_NE(taken.error().message().find("a limit"), std::string::npos) << taken.error().message();
  EXPECT_EQ(steps(), Steps{2});
}

TEST_F(BaseCacheRoomTest, APublishedFileIsReadFromTheDiskOnceItIsDropped) {
  put(1, 60, {}, true);
  const auto file = cache_.open_file(disk_, path(1)).value();
  const auto also = cache_.open_file(disk_, path(1)).value();
  save::Bytes first(60);
  ASSERT_TRUE(file->read_at(0, first));
  BaseCache::Room room(cache_);
  EXPECT_TRUE(room.take(100));
  EXPECT_EQ(steps(), Steps{});
  save::Bytes bytes(60);
  ASSERT_TRUE(file->read_at(0, bytes));
  EXPECT_EQ(bytes, first);
  EXPECT_EQ(bytes, save::random_bytes(60, 1));
  // The other one has not opened the file on disk yet.
  ASSERT_TRUE(disk_.remove(path(1)));
  EXPECT_EQ(also->read_at(0, bytes).error().kind(), ErrorKind::not_found);
  EXPECT_TRUE(file->read_at(0, bytes));
}

}  // namespace
}  // namespace bitsnap::store
