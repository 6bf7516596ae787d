// SpillingFile: the same bytes in memory and on disk, wherever the room ends.
#include "store/spilling_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::store {
namespace {

SpillingFile::HasRoom room_for(std::uint64_t limit) {
  return [limit](std::uint64_t bytes) -> Result<void> {
    if (bytes <= limit) return {};
    return fail(ErrorKind::resource_exhausted, "no room");
  };
}

Result<void> append_in_parts(os::WritableFile& file, ConstByteSpan bytes, std::size_t part) {
  while (!bytes.empty()) {
    const ConstByteSpan next = bytes.first(std::min(part, bytes.size()));
    if (Result<void> appended = file.append(next); !appended) return appended;
    bytes = bytes.subspan(next.size());
  }
  return file.sync();
}

TEST(SpillingFile, MovesToTheDiskWhereTheRoomEnds) {
  const save::Bytes bytes = save::random_bytes(2 * Blob::kPieceBytes + 77, 1);
  for (const std::size_t limit : {std::size_t{0}, std::size_t{1}, Blob::kPieceBytes, Blob::kPieceBytes + 500'000,
                                  bytes.size() - 1, bytes.size()}) {
    os::FakeFileSystem disk;
    SpillingFile file("memory", room_for(limit), [&] { return disk.create("/a"); });
    ASSERT_TRUE(append_in_parts(file, bytes, 700'001));
    EXPECT_EQ(file.size_bytes(), bytes.size());
    ASSERT_TRUE(file.close());
    if (limit < bytes.size()) {
      EXPECT_EQ(file.path(), "/a");
      EXPECT_EQ(file.blob(), nullptr);
      EXPECT_TRUE(os::read_file(disk, "/a", UINT64_MAX).value() == bytes);
      continue;
    }
    EXPECT_EQ(file.path(), "memory");
    EXPECT_FALSE(disk.stat("/a")->exists);
    save::Bytes read(bytes.size());
    file.blob()->copy(0, read);
    EXPECT_TRUE(read == bytes);
  }
}

TEST(SpillingFile, FailsWithoutRoomIfItMayNotUseTheDisk) {
  SpillingFile file("memory", room_for(10));
  ASSERT_TRUE(file.append(save::Bytes(10)));
  const Result<void> appended = file.append(save::Bytes(1));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().message(), "no room");
}

TEST(SpillingFile, ReportsEveryFailureOfTheDisk) {
  for (const os::FileOperation operation :
       {os::FileOperation::create, os::FileOperation::append, os::FileOperation::sync, os::FileOperation::close}) {
    os::FakeFileSystem disk;
    os::FaultyFileSystem faulty(disk);
    faulty.fail_at(operation, 0, {});
    SpillingFile file("memory", room_for(1000), [&] { return faulty.create("/a"); });
    Result<void> written = append_in_parts(file, save::Bytes(5000), 100);
    if (written) written = file.close();
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().kind(), ErrorKind::io);
  }
}

}  // namespace
}  // namespace bitsnap::store
