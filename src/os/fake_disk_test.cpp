// Tests of random crashes: every outcome that may occur does for some seed, and no other outcome occurs.
#include "os/fake_disk_testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"

namespace bitsnap::os {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kSeeds = 400;

void write(FakeFileSystem& fs, const std::string& path, std::string_view synced, std::string_view unsynced = {}) {
  auto file = fs.create(path);
  ASSERT_TRUE(file) << file.error().message();
  ASSERT_TRUE((*file)->append(as_byte_span(synced)));
  ASSERT_TRUE((*file)->sync());
  ASSERT_TRUE((*file)->append(as_byte_span(unsynced)));
  ASSERT_TRUE((*file)->close());
}

// "/a=text /b=" with '0' for a zero byte.
std::string files_and_texts(FakeFileSystem& fs) {
  std::string all;
  for (const std::string& path : fs.all_files()) {
    std::string text(as_text(*read_file(fs, path, 1000)));
    for (char& byte : text) byte = byte == '\0' ? '0' : byte;
    all += (all.empty() ? "" : " ") + path + "=" + text;
  }
  return all;
}

// The possible outcomes of a crash after `work`: one for each seed.
std::set<std::string> outcomes(const std::function<void(FakeFileSystem&)>& work) {
  std::set<std::string> found;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeFileSystem fs;
    work(fs);
    fs.crash_at_random(seed);
    const std::string once = files_and_texts(fs);
    found.insert(once);
    fs.crash();
    EXPECT_EQ(files_and_texts(fs), once) << "what one crash left another took, seed " << seed;
  }
  return found;
}

TEST(RandomCrash, KeepsAnySubsetOfNewNames) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/a", "1");
                write(fs, "/b", "2");
              }),
              UnorderedElementsAre("", "/a=1", "/b=2", "/a=1 /b=2"));
}

TEST(RandomCrash, DependsOnlyOnItsSeed) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::set<std::string> found;
    for (int i = 0; i < 3; ++i) {
      FakeFileSystem fs;
      for (int file = 0; file < 20; ++file) write(fs, "/" + std::to_string(file), "ab", "cdef");
      fs.crash_at_random(seed);
      found.insert(files_and_texts(fs));
    }
    EXPECT_THAT(found, SizeIs(1));
  }
}

TEST(RandomCrash, KeepsWhatWasSynced) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                ASSERT_TRUE(fs.create_directory("/d"));
                write(fs, "/d/old", "1");
                ASSERT_TRUE(fs.rename("/d/old", "/d/new"));
                write(fs, "/d/gone", "2");
                ASSERT_TRUE(fs.remove("/d/gone"));
                ASSERT_TRUE(fs.sync_directory("/d"));
                ASSERT_TRUE(fs.sync_directory("/"));
              }),
              UnorderedElementsAre("/d/new=1"));
}

TEST(RandomCrash, MayLoseChangesAfterASync) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/a", "1");
                ASSERT_TRUE(fs.sync_directory("/"));
                ASSERT_TRUE(fs.rename("/a", "/b"));
              }),
              UnorderedElementsAre("/a=1", "/b=1"));
}

TEST(RandomCrash, KeepsAnySubsetOfTheNamesOfALinkedFile) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/a", "1");
                ASSERT_TRUE(fs.link("/a", "/b"));
              }),
              UnorderedElementsAre("", "/a=1", "/b=1", "/a=1 /b=1"));
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/a", "1");
                ASSERT_TRUE(fs.link("/a", "/b"));
                ASSERT_TRUE(fs.sync_directory("/"));
                ASSERT_TRUE(fs.remove("/a"));
              }),
              UnorderedElementsAre("/b=1", "/a=1 /b=1"));
}

TEST(RandomCrash, TruncatesOrZeroesUnsyncedBytes) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/f", "ab", "cd");
                ASSERT_TRUE(fs.sync_directory("/"));
              }),
              UnorderedElementsAre("/f=ab", "/f=abc", "/f=abcd", "/f=abc0", "/f=ab00"));
}

TEST(RandomCrash, KeepsRenamesWithinADirectoryAtomic) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                fs.plant("/d/target", as_byte_span("old"));
                fs.plant("/d/new", as_byte_span("new"));
                ASSERT_TRUE(fs.rename("/d/new", "/d/target"));
              }),
              UnorderedElementsAre("/d/target=new", "/d/new=new /d/target=old"));
}

TEST(RandomCrash, MayTearAFileThatWasRenamedWithoutSync) {
  const auto found = outcomes([](FakeFileSystem& fs) {
    fs.plant("/target", as_byte_span("old"));
    write(fs, "/new", "", "new");
    ASSERT_TRUE(fs.rename("/new", "/target"));
    ASSERT_TRUE(fs.sync_directory("/"));
  });
  EXPECT_THAT(found, Contains("/target="));
  EXPECT_THAT(found, Contains("/target=000"));
  EXPECT_THAT(found, Contains("/target=new"));
  EXPECT_THAT(found, Not(Contains("/target=old")));
}

TEST(RandomCrash, NeverGivesANameAStateThatItNeverHad) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                fs.plant("/a", as_byte_span("1"));
                fs.plant("/b", as_byte_span("2"));
                ASSERT_TRUE(fs.rename("/a", "/b"));
                ASSERT_TRUE(fs.rename("/b", "/c"));
                write(fs, "/a", "3");
              }),
              UnorderedElementsAre("/a=1 /b=2", "/b=1", "/c=1", "/a=3 /b=1", "/a=3 /c=1"));
}

TEST(RandomCrash, MayUndoARemoval) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/a", "1");
                write(fs, "/b", "2");
                ASSERT_TRUE(fs.sync_directory("/"));
                ASSERT_TRUE(fs.remove("/a"));
                ASSERT_TRUE(fs.remove("/b"));
              }),
              UnorderedElementsAre("", "/a=1", "/b=2", "/a=1 /b=2"));
}

TEST(RandomCrash, MayLoseADirectoryOrPartOfItsContents) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                ASSERT_TRUE(fs.create_directory("/d"));
                write(fs, "/d/a", "1");
                ASSERT_TRUE(fs.sync_directory("/d"));
                write(fs, "/d/b", "2");
              }),
              UnorderedElementsAre("", "/d/a=1", "/d/a=1 /d/b=2"));
}

TEST(RandomCrash, RenamesADirectoryIndependentlyOfItsContents) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                ASSERT_TRUE(fs.create_directory("/d"));
                ASSERT_TRUE(fs.sync_directory("/"));
                write(fs, "/d/a", "1");
                ASSERT_TRUE(fs.rename("/d", "/e"));
              }),
              UnorderedElementsAre("", "/d/a=1", "/e/a=1"));
}

// Moves between directories, with each set of directories synced afterwards: nothing that was moved is ever lost.

void sync_some(FakeFileSystem& fs, unsigned chosen, const std::vector<std::string>& directories) {
  for (std::size_t i = 0; i < directories.size(); ++i) {
    if ((chosen >> i & 1) == 0) continue;
    ASSERT_TRUE(fs.sync_directory(directories[i]));
  }
}

TEST(RandomCrash, NeverLosesAFileBetweenTwoDirectories) {
  for (unsigned synced = 0; synced < 4; ++synced) {
    const auto found = outcomes([&](FakeFileSystem& fs) {
      fs.plant("/a/f", as_byte_span("1"));
      fs.plant("/b/g", as_byte_span("2"));
      ASSERT_TRUE(fs.rename("/a/f", "/b/f"));
      sync_some(fs, synced, {"/a", "/b"});
    });
    const std::string old_name = "/a/f=1 /b/g=2";
    const std::string new_name = "/b/f=1 /b/g=2";
    const std::string both = "/a/f=1 /b/f=1 /b/g=2";
    switch (synced) {
      case 0: EXPECT_THAT(found, UnorderedElementsAre(old_name, new_name, both)); break;
      case 2: EXPECT_THAT(found, UnorderedElementsAre(new_name, both)); break;
      default: EXPECT_THAT(found, UnorderedElementsAre(new_name)) << synced;
    }
  }
}

TEST(RandomCrash, NeverShowsADirectoryTwice) {
  for (unsigned synced = 0; synced < 4; ++synced) {
    const auto found = outcomes([&](FakeFileSystem& fs) {
      fs.plant("/a/d/f", as_byte_span("1"));
      fs.plant("/b/g", as_byte_span("2"));
      ASSERT_TRUE(fs.rename("/a/d", "/b/d"));
      sync_some(fs, synced, {"/a", "/b"});
    });
    if (synced == 0) {
      EXPECT_THAT(found, UnorderedElementsAre("/a/d/f=1 /b/g=2", "/b/d/f=1 /b/g=2"));
    } else {
      EXPECT_THAT(found, UnorderedElementsAre("/b/d/f=1 /b/g=2"));
    }
  }
}

TEST(RandomCrash, NeverLosesAFileMovedIntoANewDirectory) {
  for (unsigned synced = 0; synced < 16; ++synced) {
    EXPECT_THAT(outcomes([&](FakeFileSystem& fs) {
                  fs.plant("/a/f", as_byte_span("1"));
                  ASSERT_TRUE(fs.create_directory("/b"));
                  ASSERT_TRUE(fs.create_directory("/b/c"));
                  ASSERT_TRUE(fs.rename("/a/f", "/b/c/f"));
                  sync_some(fs, synced, {"/a", "/b/c", "/b", "/"});
                }),
                Each(HasSubstr("/f=1")))
        << synced;
  }
}

TEST(RandomCrash, NeverLosesAFileMovedOutOfARemovedDirectory) {
  for (unsigned synced = 0; synced < 4; ++synced) {
    const auto found = outcomes([&](FakeFileSystem& fs) {
      fs.plant("/a/b/f", as_byte_span("1"));
      ASSERT_TRUE(fs.rename("/a/b/f", "/f"));
      ASSERT_TRUE(fs.remove("/a/b"));
      ASSERT_TRUE(fs.remove("/a"));
      ASSERT_TRUE(fs.create_directory("/d"));
      ASSERT_TRUE(fs.create_directory("/e"));
      ASSERT_TRUE(fs.rename("/d", "/e"));
      sync_some(fs, synced, {"/", "/e"});
    });
    EXPECT_THAT(found, Each(HasSubstr("/f=1"))) << synced;
    EXPECT_THAT(found, SizeIs((synced & 1) != 0 ? 1 : 3)) << synced;
  }
}

TEST(RandomCrash, NeverLosesAFileWhenItsDirectoryIsReplaced) {
  const auto found = outcomes([](FakeFileSystem& fs) {
    fs.plant("/a/b/f", as_byte_span("1"));
    fs.plant("/c/g", as_byte_span("2"));
    ASSERT_TRUE(fs.rename("/a/b/f", "/f"));
    ASSERT_TRUE(fs.remove("/a/b"));
    ASSERT_TRUE(fs.create_directory("/a/b"));
    ASSERT_TRUE(fs.rename("/c/g", "/a/b/g"));
    ASSERT_TRUE(fs.sync_directory("/c"));  // so the new directory survives, so the old one does not
  });
  EXPECT_THAT(found, UnorderedElementsAre("/a/b/g=2 /f=1"));
}

std::vector<std::string> all_directories(FakeFileSystem& fs) {
  std::vector<std::string> found = {"/"};
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string directory = found[i];
    const auto names = fs.list_directory(directory);
    for (const std::string& name : *names) {
      const std::string path = join_path(directory, name);
      if (fs.stat(path)->is_directory) found.push_back(path);
    }
  }
  return found;
}

// Moves files and directories about, makes and removes directories and syncs some, at random; removes no file.
void shuffle(FakeFileSystem& fs, std::uint64_t seed) {
  fake::SeededRandom random(seed);
  const auto any_of = [&](const std::vector<std::string>& paths) { return paths[random.below(paths.size())]; };
  for (int step = 0; step < 40; ++step) {
    const std::string place = join_path(any_of(all_directories(fs)), "n" + std::to_string(random.below(3)));
    switch (random.below(6)) {
      case 0:
      case 1: static_cast<void>(fs.rename_no_replace(any_of(fs.all_files()), place)); break;
      case 2: static_cast<void>(fs.rename(any_of(all_directories(fs)), place)); break;
      case 3: static_cast<void>(fs.create_directory(place)); break;
      case 4: static_cast<void>(fs.remove(any_of(all_directories(fs)))); break;
      default: static_cast<void>(fs.sync_directory(any_of(all_directories(fs)))); break;
    }
  }
}

TEST(RandomCrash, NeverLosesFilesNorDuplicatesDirectoriesInRandomMoves) {
  std::uint64_t doubled = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    FakeFileSystem fs;
    for (const std::string name : {"1", "2", "3"}) fs.plant("/d/" + name, as_byte_span(name));
    shuffle(fs, seed);
    fs.crash_at_random(seed);
    const std::string files = files_and_texts(fs);
    for (const std::string text : {"=1", "=2", "=3"}) ASSERT_THAT(files, HasSubstr(text)) << seed;
    doubled += fs.all_files().size() - 3;
    const std::vector<std::string> directories = all_directories(fs);
    std::set<std::uint64_t> ids;
    for (const std::string& path : directories) ids.insert(fs.stat(path)->file_id);
    ASSERT_EQ(ids.size(), directories.size()) << seed;
  }
  EXPECT_GT(doubled, 0u);
}

TEST(RandomCrash, KeepsPlantedFiles) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                write(fs, "/d", "1");
                ASSERT_TRUE(fs.remove("/d"));
                write(fs, "/f", "", "2");
                fs.plant("/f", as_byte_span("3"));
                fs.plant("/d/f", as_byte_span("4"));
              }),
              UnorderedElementsAre("/d/f=4 /f=3"));
}

TEST(RandomCrash, MayKeepChangesWithoutDirectorySync) {
  EXPECT_THAT(outcomes([](FakeFileSystem& fs) {
                fs.refuse_directory_sync();
                write(fs, "/f", "1");
                ASSERT_EQ(*fs.sync_directory("/"), DirectorySync::unsupported);
              }),
              UnorderedElementsAre("", "/f=1"));
}

TEST(RandomCrash, UpdatesTheTimeOfChangedFiles) {
  bool was_cut = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeFileSystem fs;
    write(fs, "/f", "ab", "cd");
    ASSERT_TRUE(fs.sync_directory("/"));
    const FileInfo before = *fs.stat("/f");
    fs.crash_at_random(seed);
    const FileInfo after = *fs.stat("/f");
    EXPECT_EQ(after.file_id, before.file_id);
    EXPECT_EQ(after.modified_ns > before.modified_ns, files_and_texts(fs) != "/f=abcd");
    was_cut = was_cut || after.size_bytes < before.size_bytes;
  }
  EXPECT_TRUE(was_cut);
}

}  // namespace
}  // namespace bitsnap::os
