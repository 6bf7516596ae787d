// What is kept in memory of the files that are written: the same bytes as on the disk, or nothing.
#include "engine/mirror_file_system.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "container/raw_file_testing.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::engine {
namespace {

using container::Bytes;
using container::bytes_of;

Bytes noise(std::size_t size, unsigned seed = 1) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Bytes contents(const Blob& blob) {
  Bytes bytes;
  for (std::size_t i = 0; i < blob.pieces(); ++i) {
    bytes.insert(bytes.end(), blob.piece(i).begin(), blob.piece(i).end());
  }
  return bytes;
}

void append(os::WritableFile& file, ConstByteSpan bytes) {
  const Result<void> appended = file.append(bytes);
  ASSERT_TRUE(appended) << appended.error().message();
}

void write(os::FileSystem& files, const std::string& path, const Bytes& bytes) {
  auto file = files.create(path);
  ASSERT_TRUE(file) << file.error().message();
  append(**file, bytes);
  ASSERT_TRUE((*file)->sync());
  ASSERT_TRUE((*file)->close());
}

Result<Bytes> read(os::FileSystem& files, const std::string& path) { return os::read_file(files, path, UINT64_MAX); }

TEST(Blob, IsWhatWasAppendedHoweverItWasCut) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, Blob::kPieceBytes - 1, Blob::kPieceBytes,
                                 Blob::kPieceBytes + 1, 3 * Blob::kPieceBytes + 77}) {
    const Bytes bytes = noise(size);
    for (const std::size_t cut : {std::size_t{700'001}, 2 * Blob::kPieceBytes, std::size_t{1} << 25}) {
      BlobBuilder builder;
      for (ConstByteSpan left = bytes; !left.empty();) {
        const ConstByteSpan part = left.first(std::min(cut, left.size()));
        ASSERT_TRUE(builder.append(part));
        left = left.subspan(part.size());
      }
      EXPECT_EQ(builder.size_bytes(), size);
      const auto blob = builder.finish().value();
      EXPECT_EQ(blob->size_bytes(), size);
      EXPECT_EQ(contents(*blob), bytes);
      EXPECT_EQ(builder.size_bytes(), 0U);
    }
  }
}

TEST(Blob, IsReadAsAFileAtAnyOffset) {
  const Bytes bytes = noise(2 * Blob::kPieceBytes + 100);
  BlobBuilder builder;
  ASSERT_TRUE(builder.append(bytes));
  const auto file = blob_file(builder.finish().value(), "in/memory");
  EXPECT_EQ(file->path(), "in/memory");
  EXPECT_EQ(file->size_bytes(), bytes.size());
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const std::size_t offset = random() % (bytes.size() + 1);
    Bytes out(random() % (bytes.size() + 1 - offset));
    ASSERT_TRUE(file->read_at(offset, out));
    ASSERT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset)));
  }
  Bytes two(2);
  for (const std::uint64_t offset : {std::uint64_t{bytes.size() - 1}, std::uint64_t{bytes.size()}, UINT64_MAX}) {
    const Result<void> past = file->read_at(offset, two);
    ASSERT_FALSE(past);
    EXPECT_EQ(past.error().kind(), ErrorKind::truncated);
    EXPECT_NE(past.error().message().find("in/memory"), std::string::npos);
  }
}

TEST(BlobWriter, GivesItsBlobWhenItIsClosed) {
  BlobWriter writer("a.bsnap");
  append(writer, bytes_of("one "));
  append(writer, bytes_of("two"));
  EXPECT_TRUE(writer.sync());
  EXPECT_EQ(writer.blob(), nullptr);
  EXPECT_EQ(writer.size_bytes(), 7U);
  EXPECT_TRUE(writer.close());
  EXPECT_TRUE(writer.close());
  ASSERT_NE(writer.blob(), nullptr);
  EXPECT_EQ(contents(*writer.blob()), bytes_of("one two"));
  EXPECT_EQ(writer.append(bytes_of("more")).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(writer.sync().error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(writer.path(), "a.bsnap");
}

class Mirrored : public ::testing::Test {
 protected:
  Mirrored() {
    EXPECT_TRUE(disk_.create_directory("/run"));
    EXPECT_TRUE(disk_.create_directory("/run/1"));
    faulty_.reset();
  }

  // Whether reading the file asks the disk for its bytes.
  bool reads_disk(const std::string& path) {
    const std::uint64_t before = faulty_.count(os::FileOperation::open);
    EXPECT_TRUE(read(mirror_, path));
    return faulty_.count(os::FileOperation::open) != before;
  }

  os::FakeFileSystem disk_;
  os::FaultyFileSystem faulty_{disk_};
  std::vector<std::pair<std::string, std::shared_ptr<const Blob>>> completed_;
  std::function<void()> at_completion_;
  MirrorFileSystem mirror_{faulty_, [this](const std::string& path, const std::shared_ptr<const Blob>& blob) {
                             completed_.emplace_back(path, blob);
                             if (at_completion_) at_completion_();
                           }};
};

TEST_F(Mirrored, WritesNothingBeforeItIsComplete) {
  const Bytes bytes = noise(Blob::kPieceBytes + 5);
  auto file = mirror_.create("/run/1/a.bsnap").value();
  append(*file, ConstByteSpan(bytes).first(1000));
  append(*file, ConstByteSpan(bytes).subspan(1000));
  EXPECT_EQ(file->size_bytes(), bytes.size());
  EXPECT_EQ(disk_.stat("/run/1/a.bsnap")->size_bytes, 0U);
  EXPECT_TRUE(completed_.empty());
  EXPECT_EQ(mirror_.kept_bytes(), 0U);
  // The hook is told while the disk has none of it.
  at_completion_ = [&] { EXPECT_EQ(disk_.stat("/run/1/a.bsnap")->size_bytes, 0U); };
  ASSERT_TRUE(file->sync());
  ASSERT_EQ(completed_.size(), 1U);
  EXPECT_EQ(completed_[0].first, "/run/1/a.bsnap");
  EXPECT_EQ(contents(*completed_[0].second), bytes);
  EXPECT_EQ(read(disk_, "/run/1/a.bsnap").value(), bytes);
  EXPECT_EQ(faulty_.count(os::FileOperation::sync), 1U);
  ASSERT_TRUE(file->close());
  EXPECT_EQ(completed_.size(), 1U);
  EXPECT_EQ(mirror_.kept_bytes(), bytes.size());
  EXPECT_EQ(mirror_.kept("/run/1/a.bsnap"), completed_[0].second);
  EXPECT_FALSE(reads_disk("/run/1/a.bsnap"));
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").value(), bytes);
}

TEST_F(Mirrored, WritesAtCloseWhatWasNotSynced) {
  auto file = mirror_.create("/run/1/a.bsnap").value();
  append(*file, bytes_of("text"));
  ASSERT_TRUE(file->close());
  ASSERT_TRUE(file->close());
  EXPECT_EQ(completed_.size(), 1U);
  EXPECT_EQ(faulty_.count(os::FileOperation::sync), 0U);
  EXPECT_EQ(read(disk_, "/run/1/a.bsnap").value(), bytes_of("text"));
  EXPECT_FALSE(reads_disk("/run/1/a.bsnap"));
  EXPECT_EQ(file->append(bytes_of("more")).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(file->sync().error().kind(), ErrorKind::invalid_argument);
}

TEST_F(Mirrored, LetsOtherFilesThrough) {
  auto file = mirror_.create("/run/commit.json").value();
  append(*file, bytes_of("{}"));
  EXPECT_EQ(disk_.stat("/run/commit.json")->size_bytes, 2U);
  ASSERT_TRUE(file->close());
  EXPECT_TRUE(completed_.empty());
  EXPECT_EQ(mirror_.kept_bytes(), 0U);
  EXPECT_TRUE(reads_disk("/run/commit.json"));
  EXPECT_EQ(mirror_.list_directory("/run").value(), (std::vector<std::string>{"1", "commit.json"}));
  EXPECT_TRUE(mirror_.create_directory("/run/2"));
  EXPECT_TRUE(mirror_.stat("/run/2")->is_directory);
  EXPECT_EQ(mirror_.sync_directory("/run").value(), os::DirectorySync::done);
  EXPECT_TRUE(mirror_.lock("/run/lock", os::LockKind::exclusive));
  // What was there before this file system is read from the disk.
  write(disk_, "/run/old.bsnap", bytes_of("old"));
  EXPECT_EQ(read(mirror_, "/run/old.bsnap").value(), bytes_of("old"));
}

TEST_F(Mirrored, FailsToCreateWhereTheDiskDoes) {
  write(mirror_, "/run/1/a.bsnap", bytes_of("first"));
  EXPECT_EQ(mirror_.create("/run/1/a.bsnap").error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(mirror_.create("/run/2/a.bsnap").error().kind(), ErrorKind::not_found);
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").value(), bytes_of("first"));
  EXPECT_FALSE(reads_disk("/run/1/a.bsnap"));
}

TEST_F(Mirrored, ReportsAFailureOfTheDiskForGood) {
  for (const os::FileOperation operation : {os::FileOperation::append, os::FileOperation::sync}) {
    for (const bool half_done : {false, true}) {
      faulty_.reset();
      completed_.clear();
      faulty_.fail_at(operation, 0, {ErrorKind::io, false, half_done});
      auto file = mirror_.create("/run/1/a.bsnap").value();
      append(*file, bytes_of("something"));
      const Result<void> synced = file->sync();
      ASSERT_FALSE(synced);
      EXPECT_EQ(synced.error().kind(), ErrorKind::io);
      EXPECT_NE(synced.error().message().find("/run/1/a.bsnap"), std::string::npos);
      // Tried once, told again.
      EXPECT_EQ(file->append(bytes_of("x")).error().message(), synced.error().message());
      EXPECT_EQ(file->sync().error().message(), synced.error().message());
      EXPECT_EQ(file->close().error().message(), synced.error().message());
      EXPECT_EQ(faulty_.count(operation), 1U);
      // Whoever took the blob has it; the path gives what the disk has.
      ASSERT_EQ(completed_.size(), 1U);
      EXPECT_EQ(contents(*completed_[0].second), bytes_of("something"));
      EXPECT_EQ(mirror_.kept_bytes(), 0U);
      EXPECT_TRUE(reads_disk("/run/1/a.bsnap"));
      ASSERT_TRUE(mirror_.remove("/run/1/a.bsnap"));
    }
  }
}

TEST_F(Mirrored, KeepsNothingOfAFileThatWasGivenUp) {
  {
    auto file = mirror_.create("/run/1/a.bsnap").value();
    append(*file, bytes_of("something"));
  }
  EXPECT_EQ(disk_.stat("/run/1/a.bsnap")->size_bytes, 0U);
  {
    auto file = mirror_.create("/run/1/b.bsnap").value();
    append(*file, bytes_of("something"));
    ASSERT_TRUE(file->sync());
    EXPECT_EQ(mirror_.kept_bytes(), 9U);
  }
  EXPECT_EQ(mirror_.kept_bytes(), 0U);
}

TEST_F(Mirrored, DoesNotKeepAFileThatGrowsAfterItWasSynced) {
  auto file = mirror_.create("/run/1/a.bsnap").value();
  append(*file, bytes_of("one "));
  ASSERT_TRUE(file->sync());
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").value(), bytes_of("one "));
  append(*file, bytes_of("two"));
  EXPECT_EQ(file->size_bytes(), 7U);
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->close());
  EXPECT_EQ(completed_.size(), 1U);
  EXPECT_EQ(contents(*completed_[0].second), bytes_of("one "));
  EXPECT_EQ(mirror_.kept_bytes(), 0U);
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").value(), bytes_of("one two"));
}

TEST_F(Mirrored, ForgetsOnRequestAFileOrWhatIsBelowADirectory) {
  ASSERT_TRUE(mirror_.create_directory("/run/10"));
  for (const char* const path : {"/run/1/a.bsnap", "/run/1/b.bsnap", "/run/10/a.bsnap", "/run/1.bsnap"}) {
    write(mirror_, path, bytes_of("1234"));
  }
  EXPECT_EQ(mirror_.kept_bytes(), 16U);
  mirror_.forget("/run/1/b.bsnap");
  EXPECT_TRUE(reads_disk("/run/1/b.bsnap"));
  EXPECT_FALSE(reads_disk("/run/1/a.bsnap"));
  mirror_.forget("/run/1/");
  EXPECT_TRUE(reads_disk("/run/1/a.bsnap"));
  EXPECT_FALSE(reads_disk("/run/10/a.bsnap"));
  EXPECT_FALSE(reads_disk("/run/1.bsnap"));
  EXPECT_EQ(mirror_.kept_bytes(), 8U);
  mirror_.forget("/");
  EXPECT_EQ(mirror_.kept_bytes(), 0U);
}

TEST_F(Mirrored, DoesNotGiveOutWhatSomebodyElseReplaced) {
  write(mirror_, "/run/1/a.bsnap", bytes_of("mine"));
  ASSERT_TRUE(disk_.remove("/run/1/a.bsnap"));
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").error().kind(), ErrorKind::not_found);
  write(mirror_, "/run/1/a.bsnap", bytes_of("mine"));
  ASSERT_TRUE(disk_.remove("/run/1/a.bsnap"));
  write(disk_, "/run/1/a.bsnap", bytes_of("your"));
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").value(), bytes_of("your"));
  EXPECT_EQ(mirror_.kept_bytes(), 0U);
}

TEST_F(Mirrored, ForgetsAFileThatAnotherIsMovedOver) {
  write(mirror_, "/run/1/a.bsnap", bytes_of("old"));
  write(mirror_, "/run/1/new.tmp", bytes_of("new"));
  ASSERT_TRUE(mirror_.rename("/run/1/new.tmp", "/run/1/a.bsnap"));
  EXPECT_EQ(mirror_.kept("/run/1/a.bsnap"), nullptr);
  EXPECT_EQ(read(mirror_, "/run/1/a.bsnap").value(), bytes_of("new"));
  // What is refused has changed nothing.
  write(mirror_, "/run/1/b.bsnap", bytes_of("kept"));
  EXPECT_FALSE(mirror_.rename_no_replace("/run/1/a.bsnap", "/run/1/b.bsnap"));
  EXPECT_FALSE(mirror_.rename("/run/1/b.bsnap", "/nowhere/b.bsnap"));
  EXPECT_FALSE(mirror_.remove("/run/1"));
  EXPECT_FALSE(reads_disk("/run/1/b.bsnap"));
}

TEST_F(Mirrored, KnowsNothingWhereARenamingOrRemovalMayHaveHappened) {
  const auto check = [&](const std::function<Result<void>()>& change, os::FileOperation operation, bool half_done) {
    write(mirror_, "/run/1/a.bsnap", bytes_of("mine"));
    faulty_.reset();
    faulty_.fail_at(operation, 0, {ErrorKind::io, false, half_done});
    EXPECT_FALSE(change());
    for (const char* const path : {"/run/1/a.bsnap", "/run/1/b.bsnap"}) {
      const auto there = read(disk_, path);
      const auto seen = read(mirror_, path);
      EXPECT_EQ(seen.has_value(), there.has_value());
      EXPECT_EQ(mirror_.kept(path), nullptr);
      if (there) {
        EXPECT_TRUE(disk_.remove(path));
      }
    }
  };
  for (const bool half_done : {false, true}) {
    check([&] { return mirror_.rename("/run/1/a.bsnap", "/run/1/b.bsnap"); }, os::FileOperation::rename, half_done);
    check([&] { return mirror_.rename_no_replace("/run/1/a.bsnap", "/run/1/b.bsnap"); }, os::FileOperation::rename,
          half_done);
    check([&] { return mirror_.remove("/run/1/a.bsnap"); }, os::FileOperation::remove, half_done);
  }
}

TEST_F(Mirrored, WorksOnTheRealFileSystem) {
  const os::TemporaryDirectory directory;
  MirrorFileSystem mirror(os::real_file_system());
  const std::string step = os::join_path(directory.path(), "1");
  const std::string moved = os::join_path(directory.path(), "2");
  ASSERT_TRUE(mirror.create_directory(step));
  const Bytes bytes = noise(Blob::kPieceBytes + 17);
  write(mirror, os::join_path(step, "a.bsnap"), bytes);
  ASSERT_NE(mirror.kept(os::join_path(step, "a.bsnap")), nullptr);
  EXPECT_EQ(read(os::real_file_system(), os::join_path(step, "a.bsnap")).value(), bytes);
  ASSERT_TRUE(mirror.rename(step, moved));
  EXPECT_EQ(read(mirror, os::join_path(moved, "a.bsnap")).value(), bytes);
  EXPECT_NE(mirror.kept(os::join_path(moved, "a.bsnap")), nullptr);
}

// Files and directories come, go and move at random, some in the middle of being written; the mirror always says what
// the disk says, and what it keeps is what is there.
TEST(MirrorFileSystem, SaysWhatTheDiskSaysWhateverIsMoved) {
  const std::vector<std::string> directories = {"/a", "/ab", "/a/a", "/b"};
  std::uint64_t from_memory = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    os::FakeFileSystem disk;
    MirrorFileSystem mirror(disk);
    const auto any_directory = [&] { return directories[random() % directories.size()]; };
    const auto any_file = [&](const char* suffix = ".bsnap") {
      return any_directory() + (random() % 2 ? "/x" : "/y") + suffix;
    };
    std::vector<std::unique_ptr<os::WritableFile>> open;
    for (int i = 0; i < 150; ++i) {
      switch (random() % 8) {
        case 0: static_cast<void>(mirror.create_directory(any_directory())); break;
        case 1:
        case 2: {
          if (auto file = mirror.create(any_file(random() % 4 > 0 ? ".bsnap" : ".json"))) {
            append(**file, bytes_of(std::to_string(random())));
            open.push_back(std::move(*file));
          }
          break;
        }
        case 3:
        case 4: {
          if (open.empty()) break;
          const std::size_t number = random() % open.size();
          EXPECT_TRUE(open[number]->close());
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(number));
          break;
        }
        case 5: {
          const char* const suffix = random() % 4 > 0 ? ".bsnap" : ".json";
          static_cast<void>(mirror.rename(any_file(suffix), any_file(suffix)));
          break;
        }
        case 6: {
          const std::string from = any_directory();
          const std::string to = any_directory();
          // Into itself: an error of a kind that might have changed something.
          if (!to.starts_with(from + "/")) static_cast<void>(mirror.rename(from, to));
          break;
        }
        case 7: static_cast<void>(mirror.remove(random() % 2 ? any_file() : any_directory())); break;
      }
    }
    for (auto& file : open) EXPECT_TRUE(file->close());
    std::uint64_t kept = 0;
    for (const std::string& path : disk.all_files()) {
      EXPECT_EQ(read(mirror, path).value(), read(disk, path).value()) << path;
      if (const auto blob = mirror.kept(path)) {
        kept += blob->size_bytes();
        ++from_memory;
        EXPECT_EQ(contents(*blob), read(disk, path).value());
      } else {
        EXPECT_FALSE(path.ends_with(".bsnap")) << path;
      }
    }
    EXPECT_EQ(mirror.kept_bytes(), kept);
  }
  EXPECT_GT(from_memory, 50U);
}

}  // namespace
}  // namespace bitsnap::engine
