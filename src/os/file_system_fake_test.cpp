// Tests of the file systems for tests: crashes, full disks and faults.
#include "os/file_system_fake.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/file_system_faulty.hpp"

namespace bitsnap::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Spares = FakeFileSystem::CrashSpares;

std::string text_at(FileSystem& fs, const std::string& path) {
  const auto bytes = read_file(fs, path, 1000);
  return bytes ? std::string(as_text(*bytes)) : std::string(error_kind_name(bytes.error().kind()));
}

std::unique_ptr<WritableFile> written(FileSystem& fs, const std::string& path, std::string_view text) {
  auto file = fs.create(path);
  EXPECT_TRUE(file);
  EXPECT_TRUE((*file)->append(as_byte_span(text)));
  return std::move(file).value();
}

TEST(FakeFileSystem, LosesAFileWhoseNameWasNotSynced) {
  FakeFileSystem fs;
  ASSERT_TRUE(written(fs, "/f", "x")->sync());
  fs.crash();
  EXPECT_THAT(fs.all_files(), IsEmpty());
}

TEST(FakeFileSystem, LosesBytesThatWereNotSynced) {
  FakeFileSystem fs;
  const auto file = written(fs, "/f", "kept");
  ASSERT_TRUE(file->sync());
  ASSERT_TRUE(file->append(as_byte_span(" lost")));
  ASSERT_TRUE(file->close());
  ASSERT_TRUE(fs.sync_directory("/"));
  EXPECT_EQ(text_at(fs, "/f"), "kept lost");
  fs.crash();
  EXPECT_EQ(text_at(fs, "/f"), "kept");
}

TEST(FakeFileSystem, CopiesIndependentlyWithUnsyncedState) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    FakeFileSystem fs;
    fs.plant("/d/kept", as_byte_span("old"));
    ASSERT_TRUE(fs.create_directory("/e"));
    ASSERT_TRUE(written(fs, "/e/unsynced", "some bytes")->close());
    ASSERT_TRUE(written(fs, "/d/new", "new")->sync());
    ASSERT_TRUE(fs.rename("/d/new", "/d/kept"));
    ASSERT_TRUE(fs.rename("/e/unsynced", "/d/moved"));
    ASSERT_TRUE(fs.remove("/e"));
    const auto copy = fs.copy();
    EXPECT_EQ(copy->all_files(), fs.all_files());
    copy->crash_at_random(seed);
    EXPECT_THAT(fs.all_files(), ElementsAre("/d/kept", "/d/moved"));
    EXPECT_EQ(text_at(fs, "/d/moved"), "some bytes");
    fs.crash_at_random(seed);
    ASSERT_EQ(copy->all_files(), fs.all_files());
    for (const std::string& file : fs.all_files()) EXPECT_EQ(text_at(*copy, file), text_at(fs, file));
  }
}

TEST(FakeFileSystem, UndoesARenameThatWasNotSynced) {
  for (const bool synced : {false, true}) {
    FakeFileSystem fs;
    fs.plant("/d/target", as_byte_span("old"));
    ASSERT_TRUE(written(fs, "/d/new", "new")->sync());
    ASSERT_TRUE(fs.sync_directory("/d"));
    ASSERT_TRUE(fs.rename("/d/new", "/d/target"));
    if (synced) {
      ASSERT_TRUE(fs.sync_directory("/d"));
    }
    fs.crash();
    EXPECT_EQ(text_at(fs, "/d/target"), synced ? "new" : "old");
    EXPECT_EQ(text_at(fs, "/d/new"), synced ? "not_found" : "new");
  }
}

TEST(FakeFileSystem, UndoesARemovalThatWasNotSynced) {
  FakeFileSystem fs;
  fs.plant("/f", as_byte_span("x"));
  ASSERT_TRUE(fs.remove("/f"));
  EXPECT_EQ(text_at(fs, "/f"), "not_found");
  fs.crash();
  EXPECT_EQ(text_at(fs, "/f"), "x");
}

TEST(FakeFileSystem, LosesADirectoryWhoseNameWasNotSynced) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.create_directory("/d"));
  ASSERT_TRUE(written(fs, "/d/f", "x")->sync());
  ASSERT_TRUE(fs.sync_directory("/d"));
  fs.crash();
  EXPECT_FALSE(fs.stat("/d")->exists);
}

TEST(FakeFileSystem, CanSpareNamesOrContents) {
  FakeFileSystem names;
  written(names, "/f", "lost");
  names.crash(Spares::directory_entries);
  EXPECT_EQ(text_at(names, "/f"), "");

  FakeFileSystem contents;
  written(contents, "/unnamed", "x");
  const auto file = written(contents, "/f", "kept");
  ASSERT_TRUE(contents.sync_directory("/"));
  ASSERT_TRUE(contents.remove("/unnamed"));
  contents.crash(Spares::file_contents);
  EXPECT_EQ(text_at(contents, "/f"), "kept");
}

TEST(FakeFileSystem, KeepsEverythingWhenOnlyTheProcessDies) {
  FakeFileSystem fs;
  fs.plant("/gone", as_byte_span("x"));
  const auto file = written(fs, "/f", "kept");
  ASSERT_TRUE(fs.remove("/gone"));
  ASSERT_TRUE(fs.rename("/f", "/g"));
  fs.crash(Spares::all);
  EXPECT_THAT(fs.all_files(), ElementsAre("/g"));
  EXPECT_EQ(text_at(fs, "/g"), "kept");
  EXPECT_FALSE(file->append(as_byte_span("x")));
}

TEST(FakeFileSystem, FailsOpenFilesAfterACrash) {
  FakeFileSystem fs;
  fs.plant("/r", as_byte_span("x"));
  const auto reader = fs.open("/r");
  const auto writer = written(fs, "/w", "x");
  fs.crash();
  std::byte byte{};
  EXPECT_EQ((*reader)->read_at(0, ByteSpan(&byte, 1)).error().kind(), ErrorKind::io);
  EXPECT_EQ(writer->append({}).error().kind(), ErrorKind::io);
  EXPECT_FALSE(writer->sync());
  EXPECT_FALSE(writer->close());
  EXPECT_TRUE(fs.open("/r"));
}

TEST(FakeFileSystem, ReleasesLocksInACrash) {
  FakeFileSystem fs;
  fs.plant("/lock", {});
  auto dead = fs.lock("/lock", LockKind::exclusive);
  ASSERT_TRUE(dead);
  fs.crash();
  EXPECT_FALSE((*dead)->is_held());
  const auto held = fs.lock("/lock", LockKind::exclusive);
  ASSERT_TRUE(held);
  dead->reset();
  EXPECT_TRUE((*held)->is_held());
  EXPECT_FALSE(fs.lock("/lock", LockKind::shared)) << "a dead holder released what another one holds";
}

TEST(FakeFileSystem, StaysOutOfSpace) {
  FakeFileSystem fs;
  fs.plant("/old", as_byte_span("12345"));
  fs.limit_space(12);
  const auto file = written(fs, "/f", "1234");
  const auto failed = file->append(as_byte_span("56789"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::io);
  EXPECT_THAT(failed.error().message(), HasSubstr("/f: no space left"));
  EXPECT_EQ(text_at(fs, "/f"), "1234567");
  fs.limit_space(1000);
  EXPECT_EQ(file->append(as_byte_span("x")).error().message(), failed.error().message());
  EXPECT_FALSE(file->sync());
  EXPECT_FALSE(file->close());
}

TEST(FakeFileSystem, CanLackDirectorySync) {
  FakeFileSystem fs;
  EXPECT_EQ(*fs.sync_directory("/"), DirectorySync::done);
  fs.refuse_directory_sync();
  EXPECT_EQ(*fs.sync_directory("/"), DirectorySync::unsupported);
}

TEST(FaultyFileSystem, FailsAnOperationByKindAndNumber) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  fs.fail_at(FileOperation::create, 1, {.kind = ErrorKind::resource_exhausted});
  EXPECT_TRUE(fs.create("/a"));
  const auto failed = fs.create("/b");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::resource_exhausted);
  EXPECT_EQ(failed.error().message(), "create /b: injected fault");
  EXPECT_TRUE(fs.create("/c"));
  EXPECT_THAT(inner.all_files(), ElementsAre("/a", "/c"));
  EXPECT_EQ(fs.count(FileOperation::create), 3u);
  EXPECT_EQ(fs.count(), 3u);
  EXPECT_EQ(fs.failures(), 1u);
}

TEST(FaultyFileSystem, FailsAnOperationByNumber) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  fs.fail_at(2, {.lasting = true});
  EXPECT_TRUE(fs.create("/a"));
  EXPECT_TRUE(fs.stat("/a"));
  EXPECT_FALSE(fs.remove("/a"));
  EXPECT_FALSE(fs.list_directory("/"));
  EXPECT_FALSE(fs.open("/a"));
  EXPECT_FALSE(fs.rename("/a", "/b"));
  EXPECT_FALSE(fs.rename_no_replace("/a", "/b"));
  EXPECT_FALSE(fs.create_directory("/d"));
  EXPECT_FALSE(fs.sync_directory("/"));
  EXPECT_FALSE(fs.lock("/lock", LockKind::shared));
  EXPECT_THAT(inner.all_files(), ElementsAre("/a"));
  EXPECT_EQ(fs.failures(), 8u);
  fs.reset();
  EXPECT_EQ(fs.count(), 0u);
  EXPECT_TRUE(fs.remove("/a"));
}

TEST(FaultyFileSystem, WritesHalfOfAnAppendAndFailsFromThenOn) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  fs.fail_at(FileOperation::append, 1, {.half_done = true});
  const auto file = written(fs, "/f", "ab");
  const auto failed = file->append(as_byte_span("cdef"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(text_at(inner, "/f"), "abcd");
  for (const auto& again : {file->append(as_byte_span("x")), file->sync(), file->close()}) {
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message(), failed.error().message());
  }
  EXPECT_EQ(text_at(inner, "/f"), "abcd");
}

TEST(FaultyFileSystem, CanFailAfterDoingTheWork) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  inner.plant("/a", as_byte_span("x"));
  fs.fail_at(FileOperation::rename, 0, {.half_done = true});
  EXPECT_FALSE(fs.rename("/a", "/b"));
  EXPECT_THAT(inner.all_files(), ElementsAre("/b"));
}

TEST(FaultyFileSystem, FailsToLock) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  fs.fail_at(FileOperation::lock, 1, {.kind = ErrorKind::busy});
  EXPECT_TRUE(fs.lock("/lock", LockKind::exclusive));
  const auto failed = fs.lock("/lock", LockKind::exclusive);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::busy);
  EXPECT_EQ(failed.error().message(), "lock /lock: injected fault");
  EXPECT_TRUE(fs.lock("/lock", LockKind::exclusive));
  EXPECT_EQ(fs.count(FileOperation::lock), 3u);
}

TEST(FaultyFileSystem, RecordsOperations) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  fs.fail_at(3, {});
  const auto file = written(fs, "/a", "x");
  EXPECT_TRUE(file->close());
  EXPECT_FALSE(fs.rename("/a", "/b"));
  EXPECT_TRUE(fs.sync_directory("/"));
  std::string steps;
  for (const FaultyFileSystem::Step& step : fs.steps()) {
    steps += std::string(file_operation_name(step.operation)) + " " + step.path;
    steps += (step.to.empty() ? "" : " to " + step.to) + "; ";
  }
  EXPECT_EQ(steps, "create /a; append /a; close /a; rename /a to /b; sync directory /; ");
  fs.reset();
  EXPECT_THAT(fs.steps(), IsEmpty());
}

TEST(FaultyFileSystem, SkipsASyncSilently) {
  for (std::uint64_t skipped = 0; skipped < 4; ++skipped) {
    FakeFileSystem inner;
    FaultyFileSystem fs(inner);
    fs.skip_sync(skipped);
    for (const std::string path : {"/a", "/b"}) {
      EXPECT_TRUE(written(fs, path, path)->sync());
      EXPECT_EQ(*fs.sync_directory("/"), DirectorySync::done);
    }
    EXPECT_EQ(fs.count_syncs(), 4u);
    EXPECT_EQ(fs.count(FileOperation::sync), 2u);
    EXPECT_EQ(fs.failures(), 0u);
    inner.crash();
    EXPECT_EQ(text_at(inner, "/a"), skipped == 0 ? "" : "/a");
    EXPECT_EQ(text_at(inner, "/b"), skipped == 2 ? "" : skipped == 3 ? "not_found" : "/b");
  }
}

TEST(FaultyFileSystem, FailsReads) {
  FakeFileSystem inner;
  FaultyFileSystem fs(inner);
  inner.plant("/a", as_byte_span("x"));
  fs.fail_at(FileOperation::read, 0, {});
  EXPECT_EQ(text_at(fs, "/a"), "io");
  EXPECT_EQ(text_at(fs, "/a"), "x");
}

TEST(FaultyFileSystem, CallsItsWatcherBeforeEachOperation) {
  FakeFileSystem fake;
  FaultyFileSystem fs(fake);
  std::vector<std::string> seen;
  fs.watch([&](const FaultyFileSystem::Step& step) {
    seen.push_back(std::string(file_operation_name(step.operation)) + " " + step.path +
                   (fs.stat(step.path)->exists ? " there" : ""));
    fake.plant("/taken", as_byte_span("by another"));
  });
  EXPECT_FALSE(fs.create("/taken"));
  EXPECT_TRUE(fs.create("/new"));
  EXPECT_TRUE(fs.sync_directory("/"));
  EXPECT_THAT(seen, ElementsAre("create /taken", "create /new", "sync directory / there"));
}

}  // namespace
}  // namespace bitsnap::os
