// The contract of FileSystem, tested on the real one, the real one that follows no links, the fake one, and the faulty
// one without a fault.
#include "os/file_system.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

enum class Kind { real, real_without_links, fake, faulty };

std::string name_of(Kind kind) {
  constexpr std::array kNames = {"Real", "RealWithoutLinks", "Fake", "Faulty"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<std::byte> random_bytes(std::size_t size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class FileSystemTest : public testing::TestWithParam<Kind> {
 protected:
  FileSystemTest() : faulty_(fake_) {
    if (GetParam() == Kind::real || GetParam() == Kind::real_without_links) {
      fs_ = GetParam() == Kind::real ? &real_file_system() : without_links_.get();
      root_ = directory_.path();
    } else {
      fs_ = GetParam() == Kind::fake ? static_cast<FileSystem*>(&fake_) : &faulty_;
      root_ = "/test";
      EXPECT_TRUE(fake_.create_directory(root_));
    }
    EXPECT_FALSE(root_.empty());
  }

  std::string at(const std::string& name) const { return root_ + "/" + name; }

  void write(const std::string& name, ConstByteSpan bytes) {
    auto file = fs_->create(at(name));
    ASSERT_TRUE(file) << file.error().message();
    ASSERT_TRUE((*file)->append(bytes));
    ASSERT_TRUE((*file)->close());
  }
  void write(const std::string& name, std::string_view text) { write(name, as_byte_span(text)); }

  std::string read(const std::string& name) {
    const auto bytes = read_file(*fs_, at(name), 1 << 20);
    return bytes ? std::string(as_text(*bytes)) : "(" + bytes.error().message() + ")";
  }

  template <typename T>
  static void expect_error(const Result<T>& result, ErrorKind kind, const std::string& message_part) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind(), kind) << result.error().message();
    EXPECT_THAT(result.error().message(), HasSubstr(message_part));
  }

  TemporaryDirectory directory_;
  std::shared_ptr<FileSystem> without_links_ = real_file_system().without_links(parent_directory(directory_.path()));
  FakeFileSystem fake_;
  FaultyFileSystem faulty_;
  FileSystem* fs_;
  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(All, FileSystemTest,
                         testing::Values(Kind::real, Kind::real_without_links, Kind::fake, Kind::faulty),
                         [](const auto& test) { return name_of(test.param); });

TEST_P(FileSystemTest, ReadsBackBytesAppendedInPiecesOfAnySize) {
  const std::vector<std::byte> bytes = random_bytes(3000000, 1);
  auto file = fs_->create(at("f"));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->path(), at("f"));
  std::size_t done = 0;
  // Around the size of the write buffer, far below and far above it.
  const std::vector<std::size_t> sizes = {0,      1, 7,      262144, 262143, 1,       262142, 2,
                                          262142, 3, 262145, 100000, 162144, 1000000, 3};
  for (std::size_t i = 0; done < bytes.size(); ++i) {
    const std::size_t size = std::min(sizes[i % sizes.size()], bytes.size() - done);
    ASSERT_TRUE((*file)->append(ConstByteSpan(bytes).subspan(done, size)));
    done += size;
    EXPECT_EQ((*file)->size_bytes(), done);
    if (i == 5) {
      ASSERT_TRUE((*file)->sync());
    }
  }
  ASSERT_TRUE((*file)->sync());
  ASSERT_TRUE((*file)->close());
  const auto back = read_file(*fs_, at("f"), bytes.size());
  ASSERT_TRUE(back);
  EXPECT_TRUE(*back == bytes);
}

TEST_P(FileSystemTest, ReadsAtAnyOffsetAndReportsAnEarlyEnd) {
  write("f", "0123456789");
  auto file = fs_->open(at("f"));
  ASSERT_TRUE(file);
  EXPECT_EQ((*file)->size_bytes(), 10u);
  EXPECT_EQ((*file)->path(), at("f"));
  std::vector<std::byte> out(4);
  ASSERT_TRUE((*file)->read_at(3, out));
  EXPECT_EQ(as_text(out), "3456");
  ASSERT_TRUE((*file)->read_at(6, out));
  EXPECT_EQ(as_text(out), "6789");
  EXPECT_TRUE((*file)->read_at(10, ByteSpan()));
  expect_error((*file)->read_at(7, out), ErrorKind::truncated, at("f") + " at offset 7: expected 4 bytes, found 3");
  expect_error((*file)->read_at(10, out), ErrorKind::truncated, "found 0");
  expect_error((*file)->read_at(1000, out), ErrorKind::truncated, "offset 1000");
  for (const std::uint64_t offset : {std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 2}) {
    expect_error((*file)->read_at(offset, out), ErrorKind::truncated, "offset");
  }
}

TEST_P(FileSystemTest, ReadsFromSeveralThreads) {
  const std::vector<std::byte> bytes = random_bytes(1 << 16, 2);
  write("f", bytes);
  const auto file = fs_->open(at("f"));
  ASSERT_TRUE(file);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> out(100);
      for (std::size_t offset = t; offset + out.size() <= bytes.size(); offset += 97) {
        if (!(*file)->read_at(offset, out) || !std::equal(out.begin(), out.end(), bytes.data() + offset)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ElementsAre(0, 0, 0, 0));
}

TEST_P(FileSystemTest, RejectsOpeningNonFiles) {
  expect_error(fs_->open(at("none")), ErrorKind::not_found, at("none"));
  expect_error(fs_->open(root_), ErrorKind::invalid_argument, "directory");
  expect_error(fs_->open(""), ErrorKind::invalid_argument, "empty");
  expect_error(fs_->open(std::string("a\0b", 3)), ErrorKind::invalid_argument, "NUL");
  write("f", "x");
  expect_error(fs_->open(at("f/g")), ErrorKind::invalid_argument, at("f/g"));
}

TEST_P(FileSystemTest, RejectsCreatingAnExistingFile) {
  write("f", "first");
  expect_error(fs_->create(at("f")), ErrorKind::invalid_argument, at("f") + ": file exists");
  expect_error(fs_->create(at("none/f")), ErrorKind::not_found, at("none/f"));
  expect_error(fs_->create(root_), ErrorKind::invalid_argument, "exists");
  EXPECT_EQ(read("f"), "first");
}

TEST_P(FileSystemTest, RejectsWritingToAClosedFile) {
  auto file = fs_->create(at("f"));
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->close());
  EXPECT_TRUE((*file)->close()) << "closing again says the same";
  expect_error((*file)->append(as_byte_span("x")), ErrorKind::invalid_argument, "closed");
  expect_error((*file)->sync(), ErrorKind::invalid_argument, "closed");
}

TEST_P(FileSystemTest, RenameReplacesAFile) {
  write("a", "new");
  write("b", "old");
  ASSERT_TRUE(fs_->rename(at("a"), at("b")));
  EXPECT_EQ(read("b"), "new");
  EXPECT_THAT(*fs_->list_directory(root_), ElementsAre("b"));
  expect_error(fs_->rename(at("a"), at("b")), ErrorKind::not_found, at("a"));
  ASSERT_TRUE(fs_->create_directory(at("d")));
  expect_error(fs_->rename(at("b"), at("d")), ErrorKind::invalid_argument, at("d"));
  EXPECT_EQ(read("b"), "new");
}

TEST_P(FileSystemTest, RenameRejectsFullTargetsAndItsOwnSubdirectory) {
  ASSERT_TRUE(fs_->create_directory(at("d")));
  ASSERT_TRUE(fs_->create_directory(at("e")));
  write("d/f", "x");
  ASSERT_TRUE(fs_->rename(at("d"), at("e")));
  EXPECT_EQ(read("e/f"), "x");
  ASSERT_TRUE(fs_->create_directory(at("d")));
  expect_error(fs_->rename(at("d"), at("e")), ErrorKind::invalid_argument, at("e"));
  EXPECT_FALSE(fs_->rename(at("e"), at("e/sub")));
  EXPECT_EQ(read("e/f"), "x");
}

TEST_P(FileSystemTest, RenameNoReplaceKeepsAnExistingTarget) {
  write("a", "new");
  write("b", "old");
  expect_error(fs_->rename_no_replace(at("a"), at("b")), ErrorKind::invalid_argument, "exists");
  EXPECT_EQ(read("a"), "new");
  EXPECT_EQ(read("b"), "old");
  ASSERT_TRUE(fs_->rename_no_replace(at("a"), at("c")));
  EXPECT_EQ(read("c"), "new");
  expect_error(fs_->rename_no_replace(at("a"), at("d")), ErrorKind::not_found, at("a"));
  EXPECT_THAT(*fs_->list_directory(root_), ElementsAre("b", "c"));
}

TEST_P(FileSystemTest, LinkGivesAFileASecondName) {
  write("a", "text");
  write("b", "other");
  expect_error(fs_->link(at("a"), at("b")), ErrorKind::invalid_argument, "exists");
  expect_error(fs_->link(at("none"), at("c")), ErrorKind::not_found, at("c"));
  EXPECT_EQ(read("b"), "other");
  ASSERT_TRUE(fs_->link(at("a"), at("c")));
  EXPECT_EQ(fs_->stat(at("c"))->file_id, fs_->stat(at("a"))->file_id);
  ASSERT_TRUE(fs_->remove(at("a")));
  EXPECT_EQ(read("c"), "text");
  ASSERT_TRUE(fs_->rename(at("b"), at("c")));
  EXPECT_EQ(read("c"), "other");
  ASSERT_TRUE(fs_->create_directory(at("d")));
  expect_error(fs_->link(at("d"), at("e")), ErrorKind::unsupported, at("e"));
  EXPECT_THAT(*fs_->list_directory(root_), ElementsAre("c", "d"));
}

TEST_P(FileSystemTest, RemovesFilesAndEmptyDirectories) {
  ASSERT_TRUE(fs_->create_directory(at("d")));
  write("d/f", "x");
  expect_error(fs_->remove(at("d")), ErrorKind::invalid_argument, at("d"));
  ASSERT_TRUE(fs_->remove(at("d/f")));
  ASSERT_TRUE(fs_->remove(at("d")));
  expect_error(fs_->remove(at("d")), ErrorKind::not_found, at("d"));
  EXPECT_THAT(*fs_->list_directory(root_), IsEmpty());
}

TEST_P(FileSystemTest, KeepsAnOpenFileAfterItsRemoval) {
  write("f", "still here");
  const auto file = fs_->open(at("f"));
  ASSERT_TRUE(file);
  ASSERT_TRUE(fs_->remove(at("f")));
  std::vector<std::byte> out(10);
  ASSERT_TRUE((*file)->read_at(0, out));
  EXPECT_EQ(as_text(out), "still here");
}

TEST_P(FileSystemTest, ListsNamesInByteOrder) {
  for (const char* name : {"b", "a", "B", "10", "9", ".h", "\xc3\xa4"}) write(name, "");
  ASSERT_TRUE(fs_->create_directory(at("dir")));
  EXPECT_THAT(*fs_->list_directory(root_), ElementsAre(".h", "10", "9", "B", "a", "b", "dir", "\xc3\xa4"));
  expect_error(fs_->list_directory(at("none")), ErrorKind::not_found, at("none"));
  expect_error(fs_->list_directory(at("a")), ErrorKind::invalid_argument, at("a"));
}

TEST_P(FileSystemTest, DescribesThePath) {
  write("f", "12345");
  const auto file = fs_->stat(at("f"));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->exists && file->is_regular && !file->is_directory);
  EXPECT_EQ(file->size_bytes, 5u);
  const auto directory = fs_->stat(root_);
  ASSERT_TRUE(directory);
  EXPECT_TRUE(directory->exists && directory->is_directory && !directory->is_regular);
  EXPECT_FALSE(fs_->stat(at("none"))->exists);
  EXPECT_FALSE(fs_->stat(at("f/none"))->exists);
}

TEST_P(FileSystemTest, DistinguishesFilesOfTheSameName) {
  write("a", "same");
  write("b", "same");
  const auto id = [&](const std::string& name) { return fs_->stat(at(name))->file_id; };
  const std::uint64_t a = id("a");
  const std::uint64_t b = id("b");
  EXPECT_NE(a, b);
  EXPECT_NE(a, fs_->stat(root_)->file_id);
  EXPECT_EQ(a, id("a"));
  ASSERT_TRUE(fs_->rename(at("b"), at("a")));
  EXPECT_EQ(id("a"), b);
}

TEST_P(FileSystemTest, ReportsWhenContentsAndDirectoriesChanged) {
  const auto modified = [&](const std::string& path) { return fs_->stat(path)->modified_ns; };
  // The clock of a real file system may be coarse.
  const auto changes = [&](const std::string& path, std::int64_t before, const auto& change) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (modified(path) <= before && std::chrono::steady_clock::now() < limit) change();
    EXPECT_GT(modified(path), before);
  };
  auto file = fs_->create(at("f"));
  ASSERT_TRUE(file);
  const std::int64_t before = modified(at("f"));
  changes(at("f"), before, [&] {
    ASSERT_TRUE((*file)->append(as_byte_span("x")));
    ASSERT_TRUE((*file)->sync());
  });
  ASSERT_TRUE((*file)->close());
  const std::int64_t written = modified(at("f"));
  const std::int64_t directory = modified(root_);
  EXPECT_EQ(read("f").substr(0, 1), "x");
  EXPECT_EQ(modified(at("f")), written) << "reading changes nothing";
  changes(root_, directory, [&] {
    ASSERT_TRUE(fs_->rename(at("f"), at("g")));
    ASSERT_TRUE(fs_->rename(at("g"), at("f")));
  });
  EXPECT_EQ(modified(at("f")), written) << "a new name is no new contents";
}

TEST_P(FileSystemTest, CreatesOneDirectoryAtATime) {
  ASSERT_TRUE(fs_->create_directory(at("d")));
  expect_error(fs_->create_directory(at("d")), ErrorKind::invalid_argument, "exists");
  expect_error(fs_->create_directory(at("x/y")), ErrorKind::not_found, at("x/y"));
}

TEST_P(FileSystemTest, RejectsSyncingFilesAsDirectories) {
  const auto synced = fs_->sync_directory(root_);
  ASSERT_TRUE(synced) << synced.error().message();
  write("f", "");
  expect_error(fs_->sync_directory(at("f")), ErrorKind::invalid_argument, at("f"));
  expect_error(fs_->sync_directory(at("none")), ErrorKind::not_found, at("none"));
}

TEST_P(FileSystemTest, ReadsAWholeFileUpToALimit) {
  write("f", "12345");
  EXPECT_EQ(read_file(*fs_, at("f"), 5)->size(), 5u);
  expect_error(read_file(*fs_, at("f"), 4), ErrorKind::resource_exhausted, "5 bytes, the limit is 4");
  write("empty", "");
  EXPECT_EQ(read_file(*fs_, at("empty"), 0)->size(), 0u);
}

TEST_P(FileSystemTest, AnExclusiveLockExcludesEveryOther) {
  auto held = fs_->lock(at("lock"), LockKind::exclusive);
  ASSERT_TRUE(held) << held.error().message();
  EXPECT_TRUE((*held)->is_held());
  EXPECT_TRUE(fs_->stat(at("lock"))->is_regular) << "a lock file that is missing is made";
  expect_error(fs_->lock(at("lock"), LockKind::exclusive), ErrorKind::busy, at("lock"));
  expect_error(fs_->lock(at("lock"), LockKind::shared), ErrorKind::busy, at("lock"));
  EXPECT_TRUE((*held)->is_held());
  EXPECT_TRUE(fs_->lock(at("other"), LockKind::exclusive));
  held->reset();
  EXPECT_TRUE(fs_->lock(at("lock"), LockKind::shared));
}

TEST_P(FileSystemTest, ASharedLockExcludesExclusiveOnes) {
  write("lock", "what a lock file holds is its own affair");
  auto first = fs_->lock(at("lock"), LockKind::shared);
  auto second = fs_->lock(at("lock"), LockKind::shared);
  ASSERT_TRUE(first && second);
  expect_error(fs_->lock(at("lock"), LockKind::exclusive), ErrorKind::busy, at("lock"));
  first->reset();
  expect_error(fs_->lock(at("lock"), LockKind::exclusive), ErrorKind::busy, at("lock"));
  second->reset();
  EXPECT_TRUE(fs_->lock(at("lock"), LockKind::exclusive));
  EXPECT_EQ(read("lock"), "what a lock file holds is its own affair");
}

TEST_P(FileSystemTest, LocksTheFileNotTheName) {
  const auto held = fs_->lock(at("lock"), LockKind::exclusive);
  ASSERT_TRUE(held);
  ASSERT_TRUE(fs_->rename(at("lock"), at("moved")));
  expect_error(fs_->lock(at("moved"), LockKind::exclusive), ErrorKind::busy, at("moved"));
  EXPECT_TRUE(fs_->lock(at("lock"), LockKind::exclusive)) << "another file";
}

TEST_P(FileSystemTest, LocksOnlyFilesInExistingDirectories) {
  for (const LockKind kind : {LockKind::shared, LockKind::exclusive}) {
    expect_error(fs_->lock(at("none/lock"), kind), ErrorKind::not_found, at("none/lock"));
    expect_error(fs_->lock(root_, kind), ErrorKind::invalid_argument, root_);
    expect_error(fs_->lock("", kind), ErrorKind::invalid_argument, "empty");
  }
}

TEST(Paths, SplitAndJoinLikeTheSystem) {
  EXPECT_EQ(parent_directory("a/b/c"), "a/b");
  EXPECT_EQ(parent_directory("a//c"), "a");
  EXPECT_EQ(parent_directory("/c"), "/");
  EXPECT_EQ(parent_directory("//c"), "/");
  EXPECT_EQ(parent_directory("c"), ".");
  EXPECT_EQ(file_name("a/b/c"), "c");
  EXPECT_EQ(file_name("c"), "c");
  EXPECT_EQ(file_name("a/"), "");
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
}

}  // namespace
}  // namespace bitsnap::os
