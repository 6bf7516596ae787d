// Copies of runs that are damaged or change meanwhile, and what copies have from elsewhere.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "os/file_system_faulty.hpp"
#include "store/mirror_testing.hpp"

namespace bitsnap::store {
namespace {

using objects::RequestFault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(MirrorTest, LabelsOfCheckpointsThatTheRunDoesNotHaveStay) {
  {
    const auto store = writer();
    for (std::uint64_t step = 1; step <= 4; ++step) save(*store, step);
    ASSERT_TRUE(store->label(1, {"first", "best"}));
    ASSERT_TRUE(store->label(3, {"third"}));
  }
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  os::FakeFileSystem other;
  const Mirrorer process(bucket_);
  ASSERT_TRUE(open_mirror(process.home(), {&other, kLocalRun}, {.step = 4}).value().update());
  StoreOptions options;
  options.access = StoreAccess::write;
  const auto store = open_store(other, kLocalRun, options).value();
  save(*store, 5);
  ASSERT_TRUE(store->label(5, {"best", "fifth"}));
  ASSERT_TRUE(process.mirror(other));
  const auto reader = process.read().value();
  EXPECT_EQ(reader->find("first").value(), 1U);
  EXPECT_EQ(reader->find("third").value(), 3U);
  EXPECT_EQ(reader->find("best").value(), 5U);  // the run that is copied has the last word
  // What the run takes from its own checkpoints is taken in the copy, too.
  ASSERT_TRUE(store->unlabel("fifth"));
  ASSERT_TRUE(process.mirror(other));
  EXPECT_FALSE(reader->find("fifth"));
  EXPECT_EQ(reader->find("third").value(), 3U);
}

TEST_F(MirrorTest, ACheckpointThatIsBroughtBackHasItsLabelsAndFiles) {
  const auto store = writer();
  save(*store, 1);
  CommitOptions commit;
  commit.labels = {"best", "last"};
  commit.files = {{"note.txt", {std::byte{7}}}};
  ASSERT_TRUE(store->save(2, TestState(2).state(), kRunOnOne, nullptr, commit));
  save(*store, 3);
  ASSERT_TRUE(store->label(3, {"last"}));
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  os::FakeFileSystem other;
  const Mirrorer process(bucket_);
  for (const std::uint64_t step : {3U, 2U}) {
    ASSERT_TRUE(open_mirror(process.home(), {&other, kLocalRun}, {.step = step}).value().update());
  }
  const auto back = open_store(other, kLocalRun, {.access = StoreAccess::read}).value();
  EXPECT_THAT(back->steps().value(), ElementsAre(2, 3));
  EXPECT_EQ(back->find("best").value(), 2U);
  EXPECT_EQ(back->find("last").value(), 3U);
  EXPECT_EQ(back->files(2).value().at(0).name, "note.txt");
  // A label that is there already stays where it is.
  ASSERT_TRUE(store->label(1, {"best"}));
  ASSERT_TRUE(process.mirror(local_));
  ASSERT_TRUE(open_mirror(process.home(), {&other, kLocalRun}, {.step = 1}).value().update());
  EXPECT_EQ(back->find("best").value(), 2U);
}

TEST_F(MirrorTest, AnUpdateThatBeginsAgainReportsAllThatItDid) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 3; ++step) save(*store, step);
  const Mirrorer process(bucket_);
  bool is_first = true;
  process.objects->set_fault([&](std::string_view, const std::string& key) {
    // The run goes back while its first file is sent.
    if (key.ends_with(".bsnap") && std::exchange(is_first, false)) {
      EXPECT_TRUE(store->rollback(2, kRunOnOne));
    }
    return RequestFault::none;
  });
  const auto done = process.mirror(local_);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(done->added, ElementsAre(1, 2));
  std::uint64_t bytes = 0;
  for (const std::string& path : local_.all_files()) {
    if (path.ends_with(".bsnap")) bytes += local_.stat(path)->size_bytes;
  }
  EXPECT_EQ(done->sent_bytes, bytes);
}

// Steps 1 to 4 are a chain, and 5 refers to what has not changed since step 1.
TEST_F(MirrorTest, AMissingFileHoldsBackOnlyWhatNeedsIt) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 6; ++step) save(*store, step);
  const std::string lost = RunLayout(kLocalRun).step_file(3, shard_file_name(0, 1, ""));
  ASSERT_TRUE(local_.rename(lost, "/run/lost"));
  const Mirrorer process(bucket_);
  auto mirror = open_mirror({&local_, kLocalRun}, process.home(), {});
  const auto done = mirror->update();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(done->added, ElementsAre(1, 2, 5, 6));
  ASSERT_TRUE(done->failure);
  EXPECT_EQ(done->failure->kind(), ErrorKind::not_found);
  EXPECT_THAT(done->failure->message(),
              HasSubstr("s3://bucket/run: step 3 is not copied: " + lost + ": the file is missing; nor is step 4"));
  EXPECT_EQ(broken_law({1, 2, 5, 6}), "");
  const auto again = mirror->update();
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->failure->message(), done->failure->message());
  ASSERT_TRUE(local_.rename("/run/lost", lost));
  const auto whole = mirror->update();
  ASSERT_TRUE(whole) << whole.error().message();
  EXPECT_FALSE(whole->failure);
  EXPECT_THAT(whole->added, ElementsAre(3, 4));
  EXPECT_EQ(broken_law({1, 2, 3, 4, 5, 6}), "");
}

TEST_F(MirrorTest, AFileThatCannotBeReadHoldsBackOnlyWhatNeedsIt) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 6; ++step) save(*store, step);
  os::FaultyFileSystem disk(local_);
  for (const char* const place : {"/first", "/second"}) {  // the second one reads what the real one will
    disk.reset();
    ASSERT_TRUE(open_mirror({&disk, kLocalRun}, {&local_, place}, {}).value().update());
  }
  std::uint64_t reads = 0;
  for (const os::FaultyFileSystem::Step& step : disk.steps()) {
    if (step.operation == os::FileOperation::read && step.path.ends_with("0000000002/shard-00000-of-00001.bsnap"))
      break;
    reads += step.operation == os::FileOperation::read ? 1 : 0;
  }
  disk.reset();
  disk.fail_at(os::FileOperation::read, reads, {});
  const auto done = Mirrorer(bucket_).mirror(disk);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(disk.failures(), 1U);
  EXPECT_THAT(done->added, ElementsAre(1, 5, 6));
  ASSERT_TRUE(done->failure);
  EXPECT_THAT(done->failure->message(), HasSubstr("nor are steps 3, 4"));
  EXPECT_EQ(broken_law({1, 5, 6}), "");
  EXPECT_THAT(Mirrorer(bucket_).mirror(local_)->added, ElementsAre(2, 3, 4));
  EXPECT_EQ(broken_law({1, 2, 3, 4, 5, 6}), "");
}

TEST_F(MirrorTest, NothingIsRemovedWhileTheNewestCheckpointCannotBeCopied) {
  const auto store = writer(1);
  save(*store, 1);
  const Mirrorer process(bucket_);
  auto mirror = open_mirror({&local_, kLocalRun}, process.home(), {});
  ASSERT_TRUE(mirror->update());
  save(*store, 2);
  const std::string file = RunLayout(kLocalRun).step_file(2, shard_file_name(0, 1, ""));
  ASSERT_TRUE(local_.rename(file, "/run/lost"));
  const auto kept = mirror->update();
  ASSERT_TRUE(kept) << kept.error().message();
  EXPECT_TRUE(kept->failure);
  EXPECT_EQ(broken_law({}), "");
  EXPECT_THAT(process.read().value()->steps().value(), ElementsAre(1));
  ASSERT_TRUE(local_.rename("/run/lost", file));
  ASSERT_TRUE(mirror->update());
  EXPECT_THAT(process.read().value()->steps().value(), ElementsAre(2));
  EXPECT_EQ(broken_law({2}), "");
}

TEST_F(MirrorTest, ACheckpointThatIsMissingLeavesNothing) {
  save(*writer(), 1);
  const auto refused = Mirrorer(bucket_).mirror(local_, {.step = 99});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("/run: step 99 not found; nearby is 1"));
  EXPECT_THAT(bucket_.keys(), IsEmpty());
}

TEST_F(MirrorTest, PlacesWhereNoRunCanBeAreRefused) {
  save(*writer(), 1);
  const Mirrorer process(bucket_);
  const auto message_of = [&](os::FileSystem& files, const std::string& place) {
    const auto refused = open_mirror({&local_, kLocalRun}, {&files, place}, {});
    return refused ? "" : refused.error().message();
  };
  EXPECT_EQ(message_of(*process.files, "s3://bucket"),
            "s3://bucket: names a bucket and no run in it: expected a key after the bucket, as in s3://bucket/run");
  EXPECT_EQ(message_of(*process.files, "s3://bucket/a//run"),
            "s3://bucket/a//run: expected a key with single slashes, found '//' after s3://bucket/a");
  EXPECT_EQ(message_of(*process.files, "s3://bucket/copy@20"),
            "s3://bucket/copy@20: this names a checkpoint of the run s3://bucket/copy, expected the run alone");
  EXPECT_EQ(message_of(local_, "/copy@latest"),
            "/copy@latest: this names a checkpoint of the run /copy, expected the run alone");
  local_.plant("/home/letter.txt", as_byte_span("Dear"));
  EXPECT_THAT(message_of(local_, "/home"), HasSubstr("/home: is no run, and none can be made there: the directory "
                                                     "holds 'letter.txt'"));
  EXPECT_THAT(message_of(local_, "/home/letter.txt"), HasSubstr("this is a file, expected the directory of a run"));
  EXPECT_THAT(bucket_.keys(), IsEmpty());
  EXPECT_FALSE(local_.stat("/copy@latest")->exists);
}

TEST_F(MirrorTest, ARunThatCannotBeWrittenIsCopiedOnceAndNothingIsRemoved) {
  const auto store = writer();
  save(*store, 1);
  save(*store, 2);
  os::FaultyFileSystem disk(local_);
  const auto update = [&](bool follows) {
    disk.reset();
    disk.fail_at(os::FileOperation::create, 0, {.lasting = true});
    return Mirrorer(bucket_).mirror(disk, {.follows = follows});
  };
  const auto first = update(false);
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_THAT(first->added, ElementsAre(1, 2));
  EXPECT_TRUE(first->keeps_removed);
  save(*store, 3);
  ASSERT_TRUE(store->remove({1}, {.run = kRunOnOne}));
  const auto second = update(false);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_THAT(second->added, ElementsAre(3));
  EXPECT_THAT(second->removed, IsEmpty());
  EXPECT_EQ(broken_law({1, 2, 3}), "");
  const auto refused = update(true);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("/run: cannot be followed, because this needs a file in it"));
  // What the copy got in this way is not taken for a checkpoint of another directory, and not for one of this run.
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  ASSERT_TRUE(store->remove({2}, {.run = kRunOnOne}));
  EXPECT_THAT(Mirrorer(bucket_).mirror(local_)->removed, ElementsAre(2));
  EXPECT_EQ(broken_law({1, 3}), "");
}

TEST_F(MirrorTest, ARunWithAnIdThatCannotBeWrittenIsFollowed) {
  const auto store = writer();
  save(*store, 1);
  save(*store, 2);
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  ASSERT_TRUE(store->remove({1}, {.run = kRunOnOne}));
  os::FaultyFileSystem disk(local_);
  disk.fail_at(os::FileOperation::create, 0, {.lasting = true});
  EXPECT_THAT(Mirrorer(bucket_).mirror(disk)->removed, ElementsAre(1));
}

TEST_F(MirrorTest, ACopyOnADiskIsWholeAfterACrashOfTheMachine) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 2; ++step) save(*store, step);
  for (std::uint64_t killed_at = 0;; ++killed_at) {
    os::FakeFileSystem disk;
    bool is_killed = false;
    {
      os::FaultyFileSystem process(disk);
      process.fail_at(killed_at, {.lasting = true, .half_done = killed_at % 2 == 0});
      auto mirror = open_mirror({&local_, kLocalRun}, {&process, "/copy"}, {});
      if (mirror) static_cast<void>(mirror->update());
      is_killed = process.failures() > 0;
    }
    {
      auto mirror = open_mirror({&local_, kLocalRun}, {&disk, "/copy"}, {});
      ASSERT_TRUE(mirror) << killed_at << ": " << mirror.error().message();
      const auto done = mirror->update();
      ASSERT_TRUE(done) << killed_at << ": " << done.error().message();
    }
    disk.crash();
    const auto copy = open_store(disk, "/copy", {.access = StoreAccess::read});
    ASSERT_TRUE(copy) << killed_at << ": " << copy.error().message();
    for (const std::uint64_t step : {1U, 2U}) ASSERT_EQ(check_step(**copy, step, TestState(step)), "") << killed_at;
    for (const std::string& path : disk.all_files()) {
      ASSERT_FALSE(path.starts_with("/copy/checkpoints/") && path.ends_with(".tmp")) << killed_at << ": " << path;
    }
    if (!is_killed) break;
  }
}

}  // namespace
}  // namespace bitsnap::store
