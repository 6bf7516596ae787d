// BaseCache: which files stay in memory, compared with a naive model, and snapshots opened from memory.
#include "store/base_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::store {
namespace {

using Steps = std::vector<std::uint64_t>;

std::shared_ptr<const Blob> blob_of(std::size_t size) { return to_blob(save::Bytes(size)); }

// A snapshot that is never opened.
CachedSnapshot made(std::uint64_t step, std::uint64_t id, std::size_t size, const std::vector<std::uint64_t>& needs,
                    bool persisted = false) {
  CachedSnapshot snapshot{step, {id, 0}, blob_of(size), {}, persisted};
  for (const std::uint64_t need : needs) snapshot.needs.push_back({need, 0});
  return snapshot;
}

// The ids in the chain of a step; empty if the step is not whole.
std::vector<std::uint64_t> chain(const BaseCache& cache, std::uint64_t step) {
  std::vector<std::uint64_t> ids;
  if (const auto held = cache.chain(step)) {
    for (const BaseCache::Held& one : *held) ids.push_back(one.id.low);
  }
  return ids;
}

Steps steps_of(const BaseCache& cache) {
  Steps steps;
  for (const auto& [step, attempt] : cache.attempts()) steps.push_back(step);
  return steps;
}

TEST(BaseCache, KeepsTheNewestAndTheirDependencies) {
  BaseCache cache({.snapshots = 2});
  EXPECT_FALSE(cache.newest());
  EXPECT_TRUE(cache.put(made(1, 1, 10, {})));
  EXPECT_TRUE(cache.put(made(2, 2, 10, {1})));
  EXPECT_TRUE(cache.put(made(3, 3, 10, {2})));
  EXPECT_EQ(steps_of(cache), (Steps{2, 3}));
  EXPECT_EQ(cache.bytes(), 30U);
  EXPECT_EQ(chain(cache, 3), (Steps{3, 2, 1}));
  EXPECT_EQ(chain(cache, 1), Steps{});  // held only for its dependants
  EXPECT_EQ(cache.newest()->step, 3U);
  EXPECT_EQ(cache.newest()->links, 2U);
  EXPECT_TRUE(cache.put(made(4, 4, 10, {})));
  EXPECT_TRUE(cache.put(made(5, 5, 10, {4})));
  EXPECT_EQ(steps_of(cache), (Steps{4, 5}));
  EXPECT_EQ(cache.bytes(), 20U);
}

TEST(BaseCache, CountsLinksFromPersistedSnapshots) {
  BaseCache cache({.snapshots = 8});
  EXPECT_TRUE(cache.put(made(1, 1, 1, {})));
  EXPECT_EQ(cache.newest()->links, 0U);
  EXPECT_TRUE(cache.put(made(2, 2, 1, {1})));
  EXPECT_EQ(cache.newest()->links, 1U);
  EXPECT_TRUE(cache.put(made(3, 3, 1, {2, 1})));
  EXPECT_EQ(cache.newest()->links, 2U);
  // The same content again, now persisted.
  BaseCache other({.snapshots = 8});
  EXPECT_TRUE(other.put(made(1, 1, 1, {})));
  EXPECT_TRUE(other.put(made(2, 2, 1, {1})));
  EXPECT_EQ(other.newest()->links, 1U);
  EXPECT_TRUE(other.put(made(3, 2, 1, {1}, true)));
  EXPECT_EQ(other.newest()->links, 0U);
  EXPECT_TRUE(cache.put(made(4, 4, 1, {3}, true)));
  EXPECT_EQ(cache.newest()->links, 0U);
  EXPECT_TRUE(cache.put(made(5, 5, 1, {4})));
  EXPECT_EQ(cache.newest()->links, 1U);
}

TEST(BaseCache, DropsTheOldestWithTheirDependants) {
  BaseCache cache({.snapshots = 8, .bytes = 40});
  cache.put(made(1, 1, 10, {}));
  cache.put(made(2, 2, 10, {1}));
  cache.put(made(3, 3, 10, {}));
  cache.put(made(4, 4, 10, {3}));
  EXPECT_EQ(steps_of(cache), (Steps{1, 2, 3, 4}));
  cache.put(made(5, 5, 10, {4}));
  EXPECT_EQ(steps_of(cache), (Steps{3, 4, 5}));
  cache.set_limits({.snapshots = 8, .bytes = 30});
  EXPECT_EQ(steps_of(cache), (Steps{3, 4, 5}));
  // The newest depends on 3, so 4 and 5 are dropped first.
  EXPECT_TRUE(cache.put(made(6, 6, 10, {3})));
  EXPECT_EQ(steps_of(cache), (Steps{3, 6}));
  EXPECT_EQ(chain(cache, 6), (Steps{6, 3}));
}

TEST(BaseCache, KeepsTheNewestAloneIfItsChainDoesNotFit) {
  BaseCache cache({.snapshots = 4, .bytes = 25});
  cache.put(made(1, 1, 10, {}));
  cache.put(made(2, 2, 10, {1}));
  EXPECT_FALSE(cache.put(made(3, 3, 10, {2})));
  EXPECT_EQ(steps_of(cache), (Steps{3}));
  EXPECT_FALSE(cache.newest()->is_whole);
  EXPECT_EQ(chain(cache, 3), Steps{});
  EXPECT_EQ(cache.bytes(), 10U);
  const auto opened = cache.find({3, 0});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::not_found);
  EXPECT_NE(opened.error().message().find(SnapshotId{2, 0}.to_hex()), std::string::npos);
  EXPECT_FALSE(cache.put(made(4, 4, 26, {})));
  EXPECT_EQ(steps_of(cache), Steps{});
  EXPECT_EQ(cache.bytes(), 0U);
  EXPECT_FALSE(cache.newest());
  EXPECT_TRUE(cache.put(made(5, 5, 25, {})));
  EXPECT_EQ(steps_of(cache), (Steps{5}));
}

TEST(BaseCache, DropsLaterStepsOfAnAbandonedFuture) {
  BaseCache cache({.snapshots = 8});
  cache.put(made(10, 1, 10, {}));
  cache.put(made(20, 2, 10, {1}));
  cache.put(made(30, 3, 10, {2}));
  EXPECT_TRUE(cache.put(made(20, 4, 10, {1})));
  EXPECT_EQ(steps_of(cache), (Steps{10, 20}));
  EXPECT_EQ(chain(cache, 20), (Steps{4, 1}));
  EXPECT_EQ(cache.bytes(), 20U);
  // Step 20 again, coded against its earlier version: that one is no step any more, but its file stays.
  EXPECT_TRUE(cache.put(made(20, 5, 10, {4})));
  EXPECT_EQ(steps_of(cache), (Steps{10, 20}));
  EXPECT_EQ(chain(cache, 20), (Steps{5, 4, 1}));
}

TEST(BaseCache, HoldsTheSameContentOnce) {
  BaseCache cache({.snapshots = 8});
  cache.put(made(1, 7, 10, {}));
  // This file only says that nothing has changed: it refers to its own content, in the earlier file.
  EXPECT_TRUE(cache.put(made(2, 7, 3, {7})));
  EXPECT_EQ(steps_of(cache), (Steps{1, 2}));
  EXPECT_EQ(cache.bytes(), 10U);
  EXPECT_EQ(cache.chain(2)->at(0).blob->size_bytes(), 10U);
  EXPECT_TRUE(cache.put(made(3, 8, 10, {7})));
  EXPECT_EQ(chain(cache, 3), (Steps{8, 7}));
  // A snapshot that is not whole is replaced by one with the same content.
  EXPECT_FALSE(cache.put(made(4, 9, 10, {100})));
  EXPECT_FALSE(cache.put(made(5, 9, 10, {9})));
  EXPECT_EQ(chain(cache, 5), Steps{});
  EXPECT_FALSE(cache.find({9, 0}));
  EXPECT_TRUE(cache.put(made(6, 9, 11, {7})));
  EXPECT_EQ(chain(cache, 6), (Steps{9, 7}));
}

// The rules of the cache in their simplest form.
struct Model {
  struct One {
    std::uint64_t id, size;
    std::vector<std::uint64_t> needs;
  };
  std::vector<One> held;  // in the order of their arrival
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;

  [[nodiscard]] const One* get(std::uint64_t id) const {
    const auto found = std::ranges::find(held, id, &One::id);
    return found == held.end() ? nullptr : &*found;
  }
  [[nodiscard]] std::vector<std::uint64_t> needs_of(std::uint64_t id) const {
    const One* const one = get(id);
    return one ? one->needs : std::vector<std::uint64_t>();
  }
  [[nodiscard]] bool needs(std::uint64_t id, std::uint64_t other) const {
    return id == other || std::ranges::any_of(needs_of(id), [&](auto need) { return needs(need, other); });
  }
  [[nodiscard]] bool is_whole(std::uint64_t id) const {
    return get(id) != nullptr && std::ranges::all_of(needs_of(id), [&](auto need) { return is_whole(need); });
  }
  void drop_unneeded() {
    const Model before = *this;
    std::erase_if(held, [&](const One& one) {
      return std::ranges::none_of(steps, [&](const auto& step) { return before.needs(step.second, one.id); });
    });
  }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const One& one : held) sum += one.size;
    return sum;
  }
  void put(std::uint64_t step, const One& one, std::size_t most, std::uint64_t budget) {
    std::erase_if(steps, [&](const auto& there) { return there.first >= step; });
    steps.emplace_back(step, one.id);
    if (!is_whole(one.id)) {
      std::erase_if(held, [&](const One& there) { return there.id == one.id; });
      held.push_back(one);
    }
    while (steps.size() > most) steps.erase(steps.begin());
    drop_unneeded();
    while (bytes() > budget) {
      const std::uint64_t newest = steps.back().second;
      const auto spare = std::ranges::find_if(held, [&](const One& there) { return !needs(newest, there.id); });
      const auto old = std::ranges::find_if(held, [&](const One& there) { return there.id != newest; });
      const std::uint64_t gone = spare != held.end() ? spare->id : old != held.end() ? old->id : newest;
      const Model before = *this;
      const auto goes = [&](std::uint64_t id) { return id == gone || (id != newest && before.needs(id, gone)); };
      std::erase_if(held, [&](const One& there) { return goes(there.id); });
      std::erase_if(steps, [&](const auto& there) { return goes(there.second); });
      drop_unneeded();
    }
  }
};

TEST(BaseCache, MatchesANaiveModel) {
  unsigned fitted = 0;
  unsigned given_up = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto most = static_cast<std::uint32_t>(1 + random() % 5);
    const std::uint64_t budget = 20 + random() % 60;
    BaseCache cache({.snapshots = most, .bytes = budget});
    Model model;
    std::uint64_t step = 0;
    std::uint64_t ids = 0;
    for (int i = 0; i < 40; ++i) {
      step = random() % 12 == 0 ? step / 2 : step + 1 + random() % 2;
      // Mostly new content, coded against earlier content, which may be gone.
      const std::uint64_t id = ids > 0 && random() % 8 == 0 ? 1 + random() % ids : ++ids;
      std::vector<std::uint64_t> needs;
      for (std::uint64_t k = random() % 3; k > 0 && id > 1; --k) {
        const std::uint64_t need = id - 1 - random() % std::min<std::uint64_t>(3, id - 1);
        if (std::ranges::find(needs, need) == needs.end()) needs.push_back(need);
      }
      const std::size_t size = 1 + random() % (random() % 10 == 0 ? 100 : 20);
      const bool is_whole = cache.put(made(step, id, size, needs));
      model.put(step, {id, size, needs}, most, budget);

      Steps steps;
      for (const auto& [at, content] : model.steps) steps.push_back(at);
      ASSERT_EQ(steps_of(cache), steps) << seed << " " << i;
      ASSERT_EQ(cache.bytes(), model.bytes()) << seed << " " << i;
      ASSERT_LE(cache.bytes(), budget);
      ASSERT_EQ(is_whole, model.is_whole(id));
      ASSERT_EQ(cache.newest().has_value(), !steps.empty());
      (is_whole ? fitted : given_up)++;
      for (const auto& [at, content] : model.steps) {
        const Steps found = chain(cache, at);
        ASSERT_EQ(!found.empty(), model.is_whole(content));
        if (found.empty()) continue;
        ASSERT_EQ(found.front(), content);
        // The chain holds each needed file once, before the files that it needs itself.
        for (std::size_t k = 0; k < found.size(); ++k) {
          for (const std::uint64_t need : model.needs_of(found[k])) {
            ASSERT_EQ(std::count(found.begin() + static_cast<std::ptrdiff_t>(k) + 1, found.end(), need), 1);
          }
          ASSERT_TRUE(model.needs(content, found[k]));
        }
      }
    }
  }
  EXPECT_GT(fitted, 1000U);
  EXPECT_GT(given_up, 1000U);
}

TEST(BaseCache, AnOpenSnapshotStaysReadableWhenDropped) {
  std::shared_ptr<const Snapshot> opened;
  Training training;
  save::Chain files;
  {
    BaseCache cache({.snapshots = 1});
    for (std::uint64_t step = 1; step <= 3; ++step) {
      training.step();
      const Snapshot& saved = files.save(training.state());
      EXPECT_TRUE(cache.put(from_file(step, saved, files.file(step - 1))));
    }
    EXPECT_EQ(cache.chain(3)->size(), 3U);
    const auto found = cache.open(files.last()->id());
    ASSERT_TRUE(found) << found.error().message();
    // The cache opens it only once while somebody holds it.
    EXPECT_EQ(cache.find(files.last()->id()).value(), *found);
    opened = *found;
    EXPECT_EQ(opened->name(), "0000000003-in-memory.bsnap");
    EXPECT_EQ(cache.find({1, 2}).error().kind(), ErrorKind::not_found);
    cache.set_limits({.snapshots = 0});
    EXPECT_EQ(cache.bytes(), 0U);
    EXPECT_FALSE(cache.open(opened->id()));
  }
  EXPECT_EQ(training.difference(*opened), "");
}

TEST(BaseCache, RejectsABlobWithAnotherSnapshot) {
  Training training;
  save::Chain files;
  files.save(training.state());
  BaseCache cache({.snapshots = 1});
  cache.put({1, {1, 1}, to_blob(files.file(0)), {}, false});
  EXPECT_EQ(cache.find({1, 1}).error().kind(), ErrorKind::corrupt);
}

// Publishes a file and keeps it in the cache.
void publish(BaseCache& cache, os::FileSystem& files, const std::string& path, std::uint64_t id,
             const save::Bytes& bytes) {
  CachedSnapshot snapshot = made(id, id, 0, {});
  snapshot.blob = to_blob(bytes);
  ASSERT_TRUE(cache.put(snapshot));
  const auto file = files.create(path);
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->append(bytes));
  ASSERT_TRUE((*file)->sync());
  ASSERT_TRUE((*file)->close());
  cache.note_published(unowned(files), path, *snapshot.blob);
}

Result<save::Bytes> read(const BaseCache& cache, os::FileSystem& files, const std::string& path) {
  const auto file = cache.open_file(files, path);
  if (!file) return tl::unexpected(file.error());
  save::Bytes bytes((*file)->size_bytes());
  EXPECT_TRUE((*file)->read_at(0, bytes));
  return bytes;
}

TEST(BaseCache, OpensPublishedFilesFromMemory) {
  const os::TemporaryDirectory directory;
  os::FakeFileSystem disk;
  for (os::FileSystem* const files : {static_cast<os::FileSystem*>(&disk), &os::real_file_system()}) {
    os::FaultyFileSystem counted(*files);
    const std::string path = files == &disk ? "/a.bsnap" : os::join_path(directory.path(), "a.bsnap");
    const save::Bytes bytes = save::random_bytes(Blob::kPieceBytes + 17, 1);
    BaseCache cache;
    publish(cache, counted, path, 1, bytes);
    EXPECT_EQ(read(cache, counted, path).value(), bytes);
    EXPECT_EQ(counted.count(os::FileOperation::open), 0U);
    cache.set_limits({.snapshots = 0});
    EXPECT_EQ(read(cache, counted, path).value(), bytes);
    EXPECT_EQ(counted.count(os::FileOperation::open), 1U);
  }
}

TEST(BaseCache, IgnoresAFileThatIsNotTheBlob) {
  os::FakeFileSystem disk;
  BaseCache cache;
  publish(cache, disk, "/a.bsnap", 1, save::random_bytes(100, 1));
  const auto other = to_blob(save::random_bytes(90, 2));
  ASSERT_TRUE(cache.put({2, {2, 0}, other, {}, false}));
  cache.note_published(unowned(disk), "/a.bsnap", *other);
  cache.note_published(unowned(disk), "/absent.bsnap", *other);
  EXPECT_EQ(read(cache, disk, "/a.bsnap").value(), save::random_bytes(100, 1));
  EXPECT_EQ(read(cache, disk, "/absent.bsnap").error().kind(), ErrorKind::not_found);
}

// Files are published, moved, removed and replaced at random. An opened file always has the content on disk.
TEST(BaseCache, OpensTheContentOfTheDiskAfterMovesAndReplacements) {
  std::uint64_t from_memory = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    os::FakeFileSystem disk;
    BaseCache cache({.snapshots = 100});
    const auto any_path = [&] { return std::string("/") + "abcd"[random() % 4]; };
    for (unsigned i = 1; i <= 100; ++i) {
      const std::string path = any_path();
      const save::Bytes bytes = save::random_bytes(1 + random() % 3, i);
      switch (random() % 4) {
        case 0:
        case 1: {
          static_cast<void>(disk.remove(path));
          publish(cache, disk, path, i, bytes);
          break;
        }
        case 2: static_cast<void>(disk.rename(any_path(), any_path())); break;
        default: {  // another program's file
          static_cast<void>(disk.remove(path));
          const auto file = disk.create(path);
          ASSERT_TRUE((*file)->append(bytes));
          ASSERT_TRUE((*file)->close());
        }
      }
      for (const std::string& there : disk.all_files()) {
        os::FaultyFileSystem counted(disk);
        EXPECT_EQ(read(cache, counted, there).value(), os::read_file(disk, there, UINT64_MAX).value()) << there;
        from_memory += counted.count(os::FileOperation::open) == 0 ? 1U : 0U;
      }
    }
  }
  EXPECT_GT(from_memory, 500U);
}

}  // namespace
}  // namespace bitsnap::store
