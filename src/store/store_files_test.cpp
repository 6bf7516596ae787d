// The caller's files of checkpoints without crashes: what is kept, what removes them, what a repair saves, and limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "os/file_system_fake.hpp"
#include "store/store_calls_testing.hpp"

namespace bitsnap::store {
namespace {

using Files = std::vector<CheckpointFile>;
using Metadata = std::vector<std::pair<std::string, std::string>>;

CheckpointFile file_of(std::string name, std::size_t size, unsigned seed = 0) {
  CheckpointFile file{std::move(name), std::vector<std::byte>(size)};
  for (std::size_t i = 0; i < size; ++i) file.bytes[i] = static_cast<std::byte>(i * i + seed);
  return file;
}

// In order of their names: an empty file, one that goes into the pool, and one that does not.
const Files kFiles = {file_of(".metadata", 0), file_of("config.json", 100), file_of("\xC3\xA4 b", 70'000)};

CommitOptions with(const Files& files) { return {.files = files}; }

Result<Checkpoint> save(Store& store, std::uint64_t step, const CommitOptions& commit, std::uint64_t seed = 0) {
  return store.save(step, TestState(step, seed).state(), {1, nullptr}, nullptr, commit);
}

std::vector<std::string> names_of_step(os::FakeFileSystem& files, std::uint64_t step) {
  auto names = files.list_directory(RunLayout("/run").step_directory(step));
  return names ? *names : std::vector<std::string>();
}

std::string path_of_files(os::FakeFileSystem& files, std::uint64_t step) {
  for (const std::string& name : names_of_step(files, step)) {
    if (attempt_of_files(name)) return RunLayout("/run").step_file(step, name);
  }
  return "";
}

void flip(os::FakeFileSystem& files, const std::string& path, std::size_t at) {
  auto bytes = os::read_file(files, path, 1 << 24).value();
  bytes.at(at) ^= std::byte{1};
  files.plant(path, bytes);
}

RepairReport repair(os::FakeFileSystem& files) {
  auto report = repair_store(files, "/run", {});
  EXPECT_TRUE(report) << report.error().message();
  return report ? std::move(*report) : RepairReport{};
}

// Steps 1 and 2 of two ranks; step 2 has files and metadata.
std::unique_ptr<Store> save_shards(os::FakeFileSystem& files, const CommitOptions& second) {
  StoreOptions options = writing();
  options.access = StoreAccess::shared;
  auto store = open(files, options);
  for (const std::uint64_t step : {1U, 2U}) {
    for (const std::uint32_t shard : {0U, 1U}) {
      EXPECT_TRUE(store->save_shard(step, {shard, 2, "a1"}, TestState(step, shard).state()));
    }
    EXPECT_TRUE(store->commit(step, 2, "a1", step == 2 ? second : CommitOptions{}).value());
  }
  return store;
}

TEST(StoreFiles, ComeBackAsTheyWereGiven) {
  os::FakeFileSystem files;
  const auto store = open(files);
  ASSERT_TRUE(save(*store, 1, {}));
  const Files reversed(kFiles.rbegin(), kFiles.rend());
  const std::uint64_t stored = save(*store, 2, with(reversed)).value().stored_bytes;
  std::uint64_t on_disk = 0;
  for (const std::string& name : names_of_step(files, 2)) {
    on_disk += files.stat(RunLayout("/run").step_file(2, name))->size_bytes;
  }
  EXPECT_EQ(stored, on_disk);
  EXPECT_EQ(store->files(1).value(), Files());
  EXPECT_EQ(store->files(2).value(), kFiles);
  EXPECT_EQ(open(files, {})->files(2).value(), kFiles);
  EXPECT_EQ(store->files(3).error().message(), "/run: step 3 not found; nearby are 1 and 2");
  expect_steps(*store, {1, 2});
  EXPECT_TRUE(store->verify()->damages.empty());
  EXPECT_TRUE(store->verify()->strays.empty());
}

TEST(StoreFiles, AreCommittedWithShards) {
  os::FakeFileSystem files;
  const auto store = save_shards(files, {.metadata = {{"epoch", "3"}}, .files = kFiles});
  EXPECT_EQ(store->files(2).value(), kFiles);
  // A later call of the attempt changes nothing.
  ASSERT_TRUE(store->commit(2, 2, "a1", with({file_of("other", 1)})));
  EXPECT_EQ(store->files(2).value(), kFiles);
  EXPECT_EQ(names_of_step(files, 2).size(), 5U);  // two shards, commit.json, tensors.json and the files
}

TEST(StoreFiles, GoWithTheirCheckpoint) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.settings.max_depth = 0;
  const auto store = open(files, options);
  for (const std::uint64_t step : {1U, 2U, 3U, 4U}) ASSERT_TRUE(save(*store, step, with(kFiles)));
  ASSERT_TRUE(store->rollback(3));
  EXPECT_EQ(names_of_step(files, 4), std::vector<std::string>());
  ASSERT_TRUE(store->prune({.keep = {2}}, {.reencode = Reencode::always}));
  EXPECT_FALSE(files.stat(RunLayout("/run").step_directory(1))->exists);
  EXPECT_EQ(store->files(2).value(), kFiles);
  EXPECT_EQ(store->files(3).value(), kFiles);
}

TEST(StoreFiles, AreReplacedWithTheirCheckpoint) {
  os::FakeFileSystem files;
  const auto store = open(files);
  ASSERT_TRUE(save(*store, 1, with(kFiles)));
  const Files others = {file_of("config.json", 100, 7)};
  ASSERT_TRUE(save(*store, 1, {.replace = true, .files = others}, 5));
  EXPECT_EQ(store->files(1).value(), others);
  EXPECT_EQ(names_of_step(files, 1).size(), 3U);
  // The same files again, and none.
  ASSERT_TRUE(save(*store, 1, {.replace = true, .files = others}, 6));
  EXPECT_EQ(store->files(1).value(), others);
  ASSERT_TRUE(save(*store, 1, {.replace = true}, 7));
  EXPECT_EQ(store->files(1).value(), Files());
  EXPECT_EQ(names_of_step(files, 1).size(), 2U);
}

TEST(StoreFiles, SurviveRewriting) {
  os::FakeFileSystem files;
  const auto store = open(files);
  for (const std::uint64_t step : {1U, 2U, 3U}) ASSERT_TRUE(save(*store, step, with(kFiles)));
  ASSERT_FALSE(store->prune({.keep_last = 1}, {.reencode = Reencode::always}).value().rewritten.empty());
  EXPECT_EQ(store->files(3).value(), kFiles);
  EXPECT_TRUE(store->verify()->damages.empty());
}

TEST(StoreFiles, RejectsWhatIsNoFileAndSavesNothing) {
  os::FakeFileSystem files;
  const auto store = open(files);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("a\\b"), std::string("/a"),
        std::string("a\0b", 3), std::string("\xFF"), std::string("a\n"), std::string(256, 'a')}) {
    const Error error = save(*store, 1, with({kFiles[0], file_of(name, 1)})).error();
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << name;
    EXPECT_EQ(error.field(), "files");
  }
  EXPECT_EQ(save(*store, 1, with({kFiles[0], kFiles[0]})).error().message(), "the file '.metadata' appears twice");
  EXPECT_EQ(save(*store, 1, with({file_of("a", kMaxCheckpointFilesBytes), file_of("b", 1)})).error().message(),
            "the files of a checkpoint have at most 67108864 bytes in all, got 67108865");
  EXPECT_EQ(save(*store, 1, with(Files(kMaxCheckpointFiles + 1))).error().message(),
            "a checkpoint has at most 10000 files, got 10001");
  EXPECT_EQ(store->steps().value(), std::vector<std::uint64_t>());
  EXPECT_EQ(store->commit(1, 2, "a", with({file_of("a/b", 1)})).error().kind(), ErrorKind::invalid_argument);
}

TEST(StoreFiles, DamageIsReportedAndDoesNotHideTheState) {
  os::FakeFileSystem files;
  const auto store = open(files);
  ASSERT_TRUE(save(*store, 1, with(kFiles)));
  const std::string path = path_of_files(files, 1);
  const std::size_t size = os::read_file(files, path, 1 << 24)->size();
  for (const std::size_t at : {std::size_t{0}, std::size_t{100}, size / 2, size - 1}) {
    SCOPED_TRACE(at);
    flip(files, path, at);
    EXPECT_FALSE(open(files, {})->files(1));
    EXPECT_EQ(check_step(*open(files, {}), 1, TestState(1)), "");
    for (const bool decode : {true, false}) {
      const auto damages = open(files, {})->verify({.decode = decode})->damages;
      ASSERT_FALSE(damages.empty());
      EXPECT_EQ("/run/" + damages.front().file, path);
    }
    flip(files, path, at);
  }
  EXPECT_EQ(open(files, {})->files(1).value(), kFiles);
  ASSERT_TRUE(files.remove(path));
  EXPECT_EQ(open(files, {})->files(1).error().kind(), ErrorKind::corrupt);
  EXPECT_FALSE(open(files, {})->verify()->damages.empty());
}

TEST(StoreFiles, ARepairKeepsTheCheckpointAndReportsItsDamagedFiles) {
  os::FakeFileSystem files;
  ASSERT_TRUE(save(*open(files), 1, with(kFiles)));
  flip(files, path_of_files(files, 1), 100);
  const RepairReport report = repair(files);
  ASSERT_EQ(report.mended.size(), 1U);
  EXPECT_NE(report.mended[0].what.find("its files were lost"), std::string::npos) << report.mended[0].what;
  EXPECT_TRUE(report.dropped.empty());
  const auto store = open(files);
  expect_steps(*store, {1});
  EXPECT_EQ(store->files(1).value(), Files());
  EXPECT_TRUE(store->verify()->damages.empty());
  EXPECT_TRUE(store->verify()->strays.empty());
  EXPECT_EQ(path_of_files(files, 1), "");
}

TEST(StoreFiles, ARebuiltRecordHasFilesAndMetadata) {
  const Metadata metadata = {{"epoch", "3"}, {"\xC3\xA4", "\n"}};
  for (const Files& given : {kFiles, Files()}) {
    os::FakeFileSystem files;
    save_shards(files, {.metadata = metadata, .files = given}).reset();
    // The files of another attempt that was not committed.
    const std::string path = path_of_files(files, 2);
    const auto bytes = os::read_file(files, path, 1 << 24).value();
    files.plant(RunLayout("/run").step_file(2, files_file_name(1, "b2")), bytes);
    flip(files, RunLayout("/run").commit(2), 30);
    const RepairReport report = repair(files);
    ASSERT_EQ(report.mended.size(), 1U) << report.mended[1].what;
    const auto store = open(files);
    EXPECT_EQ(store->files(2).value(), given);
    EXPECT_EQ(store->checkpoint(2)->metadata, metadata);
    EXPECT_TRUE(store->verify()->damages.empty());
    EXPECT_TRUE(store->verify()->strays.empty());
  }
}

TEST(StoreFiles, ARebuiltRecordWithoutReadableFilesIsReported) {
  os::FakeFileSystem files;
  save_shards(files, with(kFiles)).reset();
  flip(files, path_of_files(files, 2), 3);
  flip(files, RunLayout("/run").commit(2), 30);
  const RepairReport report = repair(files);
  EXPECT_TRUE(std::ranges::any_of(report.mended, [](const auto& mended) {
    return mended.step == 2U && mended.what.find("its files were lost") != std::string::npos;
  }));
  EXPECT_TRUE(report.dropped.empty());
  EXPECT_EQ(open(files)->files(2).value(), Files());
  EXPECT_TRUE(open(files)->verify()->damages.empty());
}

}  // namespace
}  // namespace bitsnap::store
