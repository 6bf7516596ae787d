// The old file or the new one, and nothing else, whatever fails and whenever the machine crashes.
#include "os/atomic_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "os/temporary_directory_testing.hpp"

namespace bitsnap::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

constexpr std::string_view kNew = "the new contents";
constexpr std::string_view kOld = "what was there";

std::optional<std::string> existing_text(FileSystem& fs, const std::string& path) {
  const auto bytes = read_file(fs, path, 1000);
  if (!bytes) return std::nullopt;
  return std::string(as_text(*bytes));
}

Result<void> write_new(FileSystem& fs, const std::string& path, bool overwrite) {
  BITSNAP_ASSIGN(AtomicFile file, AtomicFile::create(fs, path, overwrite));
  BITSNAP_TRY(file.file().append(as_byte_span(kNew.substr(0, 7))));
  BITSNAP_TRY(file.file().append(as_byte_span(kNew.substr(7))));
  return file.commit();
}

TEST(AtomicFile, AppearsWholeUnderItsNameAndOutlivesACrash) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.create_directory("/d"));
  ASSERT_TRUE(fs.sync_directory("/"));
  auto file = AtomicFile::create(fs, "/d/f", false);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->path(), "/d/f");
  ASSERT_TRUE(file->file().append(as_byte_span(kNew)));
  EXPECT_FALSE(fs.stat("/d/f")->exists);
  EXPECT_THAT(fs.all_files(), ElementsAre(file->temporary_path()));
  ASSERT_TRUE(file->commit());
  EXPECT_TRUE(file->directory_synced());
  EXPECT_THAT(fs.all_files(), ElementsAre("/d/f"));
  fs.crash();
  EXPECT_THAT(fs.all_files(), ElementsAre("/d/f"));
  EXPECT_EQ(existing_text(fs, "/d/f"), kNew);
}

TEST(AtomicFile, RemovesItsTemporaryIfNotCommitted) {
  FakeFileSystem fs;
  fs.plant("/f", as_byte_span(kOld));
  {
    auto file = AtomicFile::create(fs, "/f", true);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->file().append(as_byte_span(kNew)));
    EXPECT_THAT(fs.all_files(), SizeIs(2));
  }
  EXPECT_THAT(fs.all_files(), ElementsAre("/f"));
  EXPECT_EQ(existing_text(fs, "/f"), kOld);
}

TEST(AtomicFile, RemovesItsTemporaryOnceAfterAMove) {
  FakeFileSystem fs;
  std::optional<AtomicFile> kept;
  {
    auto file = AtomicFile::create(fs, "/f", true);
    ASSERT_TRUE(file);
    kept.emplace(std::move(file).value());
  }
  EXPECT_THAT(fs.all_files(), ElementsAre(kept->temporary_path()));
  auto other = AtomicFile::create(fs, "/g", true);
  ASSERT_TRUE(other);
  *kept = std::move(other).value();
  EXPECT_THAT(fs.all_files(), ElementsAre(StartsWith("/.g.")));
  ASSERT_TRUE(kept->file().append(as_byte_span(kNew)));
  ASSERT_TRUE(kept->commit());
  kept.reset();
  EXPECT_THAT(fs.all_files(), ElementsAre("/g"));
}

TEST(AtomicFile, RejectsAnExistingTargetWithoutOverwrite) {
  FakeFileSystem fs;
  fs.plant("/f", as_byte_span(kOld));
  const auto early = AtomicFile::create(fs, "/f", false);
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(early.error().message(), HasSubstr("/f: it already exists"));

  auto late = AtomicFile::create(fs, "/g", false);
  ASSERT_TRUE(late);
  fs.plant("/g", as_byte_span(kOld));
  const auto committed = late->commit();
  ASSERT_FALSE(committed);
  EXPECT_EQ(committed.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(existing_text(fs, "/g"), kOld);
  EXPECT_THAT(fs.all_files(), ElementsAre("/f", "/g"));

  ASSERT_TRUE(write_new(fs, "/f", true));
  EXPECT_EQ(existing_text(fs, "/f"), kNew);
}

TEST(AtomicFile, RejectsPathsThatNameNoFile) {
  FakeFileSystem fs;
  ASSERT_TRUE(fs.create_directory("/d"));
  for (const std::string path : {"", "/", "/d/", ".", "/d/..", "/d"}) {
    const auto file = AtomicFile::create(fs, path, true);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().kind(), ErrorKind::invalid_argument) << path;
  }
  EXPECT_EQ(AtomicFile::create(fs, "/none/f", true).error().kind(), ErrorKind::not_found);
  EXPECT_THAT(fs.all_files(), IsEmpty());
}

TEST(AtomicFile, CommitsOnlyOnce) {
  FakeFileSystem fs;
  auto file = AtomicFile::create(fs, "/f", false);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(file->commit().error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(fs.all_files(), ElementsAre("/f"));
}

TEST(AtomicFile, WorksWithoutDirectorySync) {
  FakeFileSystem fs;
  fs.refuse_directory_sync();
  auto file = AtomicFile::create(fs, "/f", false);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->commit());
  EXPECT_FALSE(file->directory_synced());
}

TEST(AtomicFile, SkipsSyncsForCachedFiles) {
  FakeFileSystem fs;
  fs.plant("/f", as_byte_span(kOld));
  FaultyFileSystem counter(fs);
  const auto start = [&] { return AtomicFile::create(counter, "/f", true, kDefaultFileMode, Durability::cached); };
  {
    auto given_up = start();
    ASSERT_TRUE(given_up);
    ASSERT_TRUE(given_up->file().append(as_byte_span(kNew)));
  }
  EXPECT_EQ(existing_text(fs, "/f"), kOld);
  auto moved = start();
  ASSERT_TRUE(moved);
  AtomicFile file = std::move(moved).value();
  ASSERT_TRUE(file.file().append(as_byte_span(kNew)));
  ASSERT_TRUE(file.commit());
  EXPECT_FALSE(file.directory_synced());
  EXPECT_EQ(existing_text(fs, "/f"), kNew);
  EXPECT_THAT(fs.all_files(), ElementsAre("/f"));
  EXPECT_EQ(counter.count(FileOperation::sync) + counter.count(FileOperation::sync_directory), 0u);
  EXPECT_EQ(counter.count(FileOperation::close), 1u) << "what only close() reports must not be lost";
}

TEST(AtomicFile, CommitFailsAfterAFailedWriteAndLeavesTheOldFile) {
  FakeFileSystem fs;
  fs.plant("/f", as_byte_span(kOld));
  fs.limit_space(kOld.size() + 5);
  auto file = AtomicFile::create(fs, "/f", true);
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->file().append(as_byte_span(kNew)));
  const auto committed = file->commit();
  ASSERT_FALSE(committed);
  EXPECT_EQ(committed.error().kind(), ErrorKind::io);
  EXPECT_EQ(existing_text(fs, "/f"), kOld);
  EXPECT_THAT(fs.all_files(), ElementsAre("/f"));
}

// Every operation fails in turn, once or for good, done or not done, and then the machine crashes or does not.
TEST(AtomicFile, LeavesTheOldOrTheNewFileAfterAnyFailure) {
  using Spares = FakeFileSystem::CrashSpares;
  for (const bool overwrite : {false, true}) {
    FakeFileSystem counted;
    FaultyFileSystem counter(counted);
    ASSERT_TRUE(write_new(counter, "/f", overwrite));
    const std::uint64_t operations = counter.count();
    ASSERT_GE(operations, 7u);  // stat, create, two appends, sync, close, rename, sync of the directory
    for (std::uint64_t index = 0; index <= operations; ++index) {
      for (int variant = 0; variant < 4 * 12; ++variant) {
        FakeFileSystem fs;
        if (overwrite) fs.plant("/f", as_byte_span(kOld));
        FaultyFileSystem faulty(fs);
        faulty.fail_at(index, {.lasting = (variant & 1) != 0, .half_done = (variant & 2) != 0});
        const Result<void> result = write_new(faulty, "/f", overwrite);
        EXPECT_EQ(result.has_value(), index == operations);
        if (!result) {
          EXPECT_THAT(result.error().message(), HasSubstr("injected fault"));
        }
        if (const int crash = variant / 4; crash != 0) {
          switch (crash) {
            case 1: fs.crash(Spares::nothing); break;
            case 2: fs.crash(Spares::directory_entries); break;
            case 3: fs.crash(Spares::file_contents); break;
            case 4: fs.crash(Spares::all); break;
            default: fs.crash_at_random(static_cast<std::uint64_t>(crash)); break;
          }
        }
        const auto text = existing_text(fs, "/f");
        const bool is_old = overwrite ? text == kOld : !text.has_value();
        EXPECT_TRUE(is_old || text == kNew)
            << "index " << index << ", variant " << variant << ": " << text.value_or("nothing");
        if (result) {
          EXPECT_EQ(text, kNew) << "variant " << variant;
        }
      }
    }
  }
}

// Proves that the crash tests would find a missing sync.
TEST(AtomicFile, NeedsEachOfItsSyncs) {
  FakeFileSystem counted;
  FaultyFileSystem counter(counted);
  ASSERT_TRUE(write_new(counter, "/f", true));
  ASSERT_EQ(counter.count_syncs(), 2u);
  for (std::uint64_t skipped = 0; skipped <= counter.count_syncs(); ++skipped) {
    int losses = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      FakeFileSystem fs;
      FaultyFileSystem faulty(fs);
      faulty.skip_sync(skipped);
      ASSERT_TRUE(write_new(faulty, "/f", true));
      fs.crash_at_random(seed);
      if (existing_text(fs, "/f") != kNew) ++losses;
    }
    EXPECT_EQ(losses > 0, skipped < counter.count_syncs()) << skipped;
  }
}

TEST(AtomicFile, LeavesNoTemporaryAfterATransientFailure) {
  FakeFileSystem counted;
  FaultyFileSystem counter(counted);
  ASSERT_TRUE(write_new(counter, "/f", true));
  for (std::uint64_t index = 0; index < counter.count(); ++index) {
    FakeFileSystem fs;
    fs.plant("/f", as_byte_span(kOld));
    FaultyFileSystem faulty(fs);
    faulty.fail_at(index, {});
    EXPECT_FALSE(write_new(faulty, "/f", true));
    EXPECT_THAT(fs.all_files(), ElementsAre("/f")) << index;
  }
}

TEST(AtomicFile, ReportsAFailedDirectorySync) {
  FakeFileSystem fs;
  FaultyFileSystem faulty(fs);
  faulty.fail_at(FileOperation::sync_directory, 0, {});
  const auto result = write_new(faulty, "/f", false);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message(), HasSubstr("may not outlive a crash"));
  EXPECT_EQ(existing_text(fs, "/f"), kNew);
}

TEST(AtomicFile, RecognizesNamesOfTemporaries) {
  FakeFileSystem fs;
  for (const std::string name : {"f", "a.bsnap", ".hidden", "x.tmp"}) {
    const auto file = AtomicFile::create(fs, "/" + name, false);
    ASSERT_TRUE(file);
    EXPECT_THAT(file->temporary_path(), StartsWith("/." + name + "."));
    EXPECT_TRUE(AtomicFile::is_temporary_name(file_name(file->temporary_path())));
  }
  for (const std::string_view name :
       {"", "f", ".tmp", ".f.tmp", ".f.0123456789abcdef", "f.0123456789abcdef.tmp", "..0123456789abcdef.tmp",
        ".f.0123456789abcdeX.tmp", ".f.0123456789abcdef.tmp2"}) {
    EXPECT_FALSE(AtomicFile::is_temporary_name(name)) << name;
  }
  EXPECT_TRUE(AtomicFile::is_temporary_name(".f.0123456789abcdef.tmp"));
}

TEST(AtomicFile, WritesToTheRealFileSystem) {
  const TemporaryDirectory directory;
  FileSystem& fs = real_file_system();
  ASSERT_TRUE(write_new(fs, directory / "f", false));
  EXPECT_FALSE(write_new(fs, directory / "f", false));
  ASSERT_TRUE(write_new(fs, directory / "f", true));
  EXPECT_EQ(existing_text(fs, directory / "f"), kNew);
  {
    ASSERT_TRUE(AtomicFile::create(fs, directory / "given-up", false));
  }
  EXPECT_THAT(*fs.list_directory(directory.path()), ElementsAre("f"));
}

TEST(AtomicFile, SupportsTheLongestFileName) {
  const TemporaryDirectory directory;
  FileSystem& fs = real_file_system();
  std::string umlauts;
  while (umlauts.size() < 254) umlauts += "\xc3\xa4";
  for (const std::string& name : {std::string(255, 'n'), umlauts}) {
    ASSERT_TRUE(write_new(fs, directory / name, false));
    EXPECT_EQ(existing_text(fs, directory / name), kNew);
  }
  EXPECT_EQ(write_new(fs, directory / std::string(256, 'n'), false).error().kind(), ErrorKind::invalid_argument);
}

TEST(AtomicFile, RejectsReplacingADevice) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  const auto file = AtomicFile::create(real_file_system(), directory / "pipe", true);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message(), HasSubstr("not a regular file"));
}

TEST(AtomicFile, ReplacesASymbolicLinkNotItsTarget) {
  const TemporaryDirectory directory;
  FileSystem& fs = real_file_system();
  ASSERT_TRUE(write_new(fs, directory / "real", false));
  ASSERT_EQ(::symlink("real", (directory / "link").c_str()), 0);
  auto file = AtomicFile::create(fs, directory / "link", true);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(existing_text(fs, directory / "link"), "");
  EXPECT_EQ(existing_text(fs, directory / "real"), kNew);
}

}  // namespace
}  // namespace bitsnap::os
