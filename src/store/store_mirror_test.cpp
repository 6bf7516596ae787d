// Mirrors: copies of runs that change in drawn ways, in an object store whose requests fail at any moment.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "store/label_record.hpp"
#include "store/mirror_testing.hpp"

namespace bitsnap::store {
namespace {

using objects::RequestFault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(MirrorTest, FollowsARun) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 3; ++step) save(*store, step);
  ASSERT_TRUE(store->label(2, {"best"}));
  const Mirrorer process(bucket_);
  auto mirror = open_mirror({&local_, kLocalRun}, process.home(), {});
  ASSERT_TRUE(mirror) << mirror.error().message();
  const auto first = mirror->update();
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_THAT(first->added, ElementsAre(1, 2, 3));
  EXPECT_EQ(first->newest, 3U);
  EXPECT_EQ(names_in_copy(), names_in_run());
  EXPECT_EQ(process.read().value()->find("best").value(), 2U);
  const std::uint64_t requests = process.objects->requests();
  const auto nothing = mirror->update();
  ASSERT_TRUE(nothing) << nothing.error().message();
  EXPECT_THAT(nothing->added, IsEmpty());
  EXPECT_EQ(process.objects->requests(), requests);  // what has not changed costs nothing
  save(*store, 4);
  EXPECT_THAT(mirror->update()->added, ElementsAre(4));
  EXPECT_LE(process.objects->requests() - requests, 10U);
  ASSERT_TRUE(store->remove({1}, {.run = kRunOnOne}));
  const auto removed = mirror->update();
  ASSERT_TRUE(removed) << removed.error().message();
  EXPECT_THAT(removed->removed, ElementsAre(1));
  EXPECT_EQ(broken_law(steps_of_run()), "");
}

TEST_F(MirrorTest, BringsOneCheckpointBackAndFollowsTheRunThatGoesOn) {
  {
    const auto store = writer();
    for (std::uint64_t step = 1; step <= 4; ++step) save(*store, step);
  }
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  // Another machine.
  os::FakeFileSystem other;
  const Mirrorer process(bucket_);
  {
    auto back = open_mirror(process.home(), {&other, kLocalRun}, {.step = 4});
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_THAT(back->update()->added, ElementsAre(4));
  }
  {
    StoreOptions options;
    options.access = StoreAccess::write;
    const auto store = open_store(other, kLocalRun, options).value();
    EXPECT_THAT(store->steps().value(), ElementsAre(4));
    EXPECT_EQ(check_step(*store, 4, TestState(4)), "");
    save(*store, 5);
  }
  const auto followed = process.mirror(other);
  ASSERT_TRUE(followed) << followed.error().message();
  EXPECT_THAT(followed->added, ElementsAre(5));
  EXPECT_THAT(process.read().value()->steps().value(), ElementsAre(1, 2, 3, 4, 5));
  seeds_[5] = 0;
  EXPECT_EQ(broken_law({1, 2, 3, 4, 5}), "");
  // The first machine comes back, and would go on from step 4 once more.
  save(*writer(), 5, 7);
  const auto refused = process.mirror(local_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::invalid_argument);
  EXPECT_THAT(refused.error().message(), HasSubstr("s3://bucket/run: has step 5, which /run does not have: a run on "));
  seeds_[5] = 0;
  EXPECT_EQ(broken_law({1, 2, 3, 4, 5}), "");
}

TEST_F(MirrorTest, AnotherRunIsRefused) {
  save(*writer(), 1);
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  os::FakeFileSystem other;
  {
    StoreOptions options;
    options.access = StoreAccess::write;
    save(*open_store(other, kLocalRun, options).value(), 1, 3);
  }
  const auto refused = Mirrorer(bucket_).mirror(other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("is another run than /run: expected the id "));
  seeds_[1] = 0;
  EXPECT_EQ(broken_law({1}), "");
}

TEST_F(MirrorTest, WhatWasSentIsNotSentAgain) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 3; ++step) save(*store, step);
  const Mirrorer killed(bucket_);
  killed.objects->set_fault([](std::string_view request, const std::string& key) {
    const bool is_record = request == "put_if_absent" && key.ends_with("0000000003/commit.json");
    return is_record ? RequestFault::dead : RequestFault::none;
  });
  ASSERT_FALSE(killed.mirror(local_));
  const auto again = Mirrorer(bucket_).mirror(local_);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->sent_bytes, 0U);
  EXPECT_THAT(again->added, ElementsAre(3));
  EXPECT_EQ(broken_law({1, 2, 3}), "");
}

TEST_F(MirrorTest, DamageOfTheRunIsNoRemoval) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 3; ++step) save(*store, step);
  const Mirrorer process(bucket_);
  auto mirror = open_mirror({&local_, kLocalRun}, process.home(), {});
  ASSERT_TRUE(mirror->update());
  const std::string record = RunLayout(kLocalRun).commit(2);
  ASSERT_TRUE(local_.remove(record));
  {
    const auto broken = local_.create(record).value();
    ASSERT_TRUE(broken->append(as_byte_span("nonsense")) && broken->close());
  }
  save(*store, 4);
  const auto done = mirror->update();
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_THAT(done->added, ElementsAre(4));
  EXPECT_THAT(done->removed, IsEmpty());
  EXPECT_EQ(broken_law({1, 2, 3, 4}), "");
}

TEST_F(MirrorTest, ACheckpointThatIsBroughtBackReplacesNothing) {
  save(*writer(), 1);
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  ASSERT_TRUE(writer()->rollback(1, kRunOnOne));
  save(*writer(), 2);
  os::FakeFileSystem other;
  const Mirrorer process(bucket_);
  ASSERT_TRUE(open_mirror(process.home(), {&other, kLocalRun}, {.step = 1}).value().update());
  ASSERT_TRUE(process.mirror(local_));
  {
    StoreOptions options;
    options.access = StoreAccess::write;
    const auto store = open_store(other, kLocalRun, options).value();
    ASSERT_TRUE(store->save(2, TestState(2, 8).state(), kRunOnOne));
  }
  auto back = open_mirror(process.home(), {&other, kLocalRun}, {.step = 2});
  ASSERT_TRUE(back);
  EXPECT_THAT(back->update().error().message(), HasSubstr("/run: has another step 2 than s3://bucket/run"));
  const auto kept = open_store(other, kLocalRun, {.access = StoreAccess::read}).value();
  EXPECT_EQ(check_step(*kept, 2, TestState(2, 8)), "");
}

TEST_F(MirrorTest, WhatIsLostInTheRunStaysInTheCopy) {
  {
    const auto store = writer();
    for (std::uint64_t step = 1; step <= 3; ++step) save(*store, step);
  }
  const Mirrorer process(bucket_);
  ASSERT_TRUE(process.mirror(local_));
  ASSERT_TRUE(local_.remove(RunLayout(kLocalRun).commit(3)));
  ASSERT_TRUE(process.mirror(local_));
  EXPECT_EQ(broken_law({1, 2, 3}), "");
  ASSERT_TRUE(local_.remove(RunLayout(kLocalRun).commit(2)));
  ASSERT_TRUE(local_.remove(RunLayout(kLocalRun).commit(1)));
  const auto refused = process.mirror(local_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("/run: has no checkpoint, and s3://bucket/run has some"));
  EXPECT_EQ(broken_law({1, 2, 3}), "");
}

TEST_F(MirrorTest, ARetiredStepWhoseRecordIsDamagedStaysForThoseThatNeedIt) {
  {
    const auto store = writer();
    for (std::uint64_t step = 1; step <= 3; ++step) save(*store, step);
    ASSERT_TRUE(store->remove({1}, {.reencode = Reencode::never, .run = kRunOnOne}));
  }
  const std::string record = RunLayout(kLocalRun).retired(1);
  ASSERT_TRUE(local_.stat(record)->exists);
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  ASSERT_TRUE(local_.remove(record));
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  EXPECT_EQ(broken_law({2, 3}), "");
}

TEST_F(MirrorTest, ACopyThatWasContinuedIsNotReplaced) {
  save(*writer(), 1);
  ASSERT_TRUE(Mirrorer(bucket_).mirror(local_));
  {
    StoreOptions options;
    options.access = StoreAccess::write;
    ASSERT_TRUE(
        open_store(*Mirrorer(bucket_).files, kCopy, options).value()->save(2, TestState(2, 6).state(), kRunOnOne));
  }
  ever_[2].insert(6);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // saves are told apart by their times
  save(*writer(), 2);
  const auto refused = Mirrorer(bucket_).mirror(local_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("has step 2, which /run does not have"));
  EXPECT_EQ(check_step(*Mirrorer(bucket_).read().value(), 2, TestState(2, 6)), "");
}

TEST_F(MirrorTest, TheRunItselfIsNoPlaceForItsCopy) {
  save(*writer(), 1);
  for (const char* place : {"/run", "/run/copy"}) {
    const auto refused = open_mirror({&local_, kLocalRun}, {&local_, place}, {});
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message(), HasSubstr("is the run /run itself, or lies in it"));
  }
}

TEST_F(MirrorTest, ADamagedRecordOfTheCopyIsWrittenAgain) {
  save(*writer(), 1);
  save(*writer(), 2);
  const Mirrorer process(bucket_);
  ASSERT_TRUE(process.mirror(local_));
  ASSERT_TRUE(process.objects->put("run/checkpoints/0000000002/commit.json", as_byte_span("nonsense")));
  const auto again = Mirrorer(bucket_).mirror(local_);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->sent_bytes, 0U);
  EXPECT_EQ(broken_law({1, 2}), "");
}

TEST_F(MirrorTest, KeepsToARate) {
  save(*writer(), 1);
  std::uint64_t asked = 0;
  MirrorOptions options;
  options.bytes_per_second = 1;  // a file would take hours
  save(*writer(), 2);
  options.interrupted = [&] { return ++asked > 2; };
  const auto done = Mirrorer(bucket_).mirror(local_, options);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind(), ErrorKind::cancelled);
}

TEST_F(MirrorTest, AnInterruptEndsAnUpdateBetweenSteps) {
  const auto store = writer();
  for (std::uint64_t step = 1; step <= 4; ++step) save(*store, step);
  MirrorOptions options;
  options.interrupted = [&] { return std::ranges::count(names_in_copy(), "checkpoints/0000000002/commit.json") > 0; };
  const auto done = Mirrorer(bucket_).mirror(local_, options);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind(), ErrorKind::cancelled);
  EXPECT_THAT(Mirrorer(bucket_).read().value()->steps().value(), ElementsAre(1, 2));
  EXPECT_THAT(Mirrorer(bucket_).mirror(local_)->added, ElementsAre(3, 4));
  EXPECT_EQ(broken_law({1, 2, 3, 4}), "");
}

TEST_F(MirrorTest, AnInterruptEndsAnUpdateWithinAFile) {
  ASSERT_TRUE(writer()->save(1, TestState(1, 0, 500).state(), kRunOnOne));  // 6 MB
  MirrorOptions options;
  options.interrupted = [asked = 0]() mutable { return ++asked > 2; };
  const auto done = Mirrorer(bucket_).mirror(local_, options);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().kind(), ErrorKind::cancelled);
  EXPECT_THAT(Mirrorer(bucket_).read().value()->steps().value(), IsEmpty());
}

class MirrorHistories : public MirrorTest, public ::testing::WithParamInterface<std::uint64_t> {};

TEST_P(MirrorHistories, AreCopiedThroughAnyFault) {
  std::mt19937_64 random(GetParam());
  for (int round = 0; round < 12; ++round) {
    for (std::uint64_t changes = 1 + random() % 5; changes > 0; --changes) {
      change(random);
      if (HasFatalFailure()) return;
    }
    for (std::uint64_t tries = random() % 5; tries > 0; --tries) {
      const auto before = checkpoints_of_copy();
      const Mirrorer process(bucket_);
      std::uint64_t left = random() % 40;
      std::uint64_t until_change = random() % 60;  // the run may change while it is copied
      const auto fault = static_cast<RequestFault>(1 + random() % 4);
      process.objects->set_fault([&](std::string_view, const std::string&) {
        if (until_change-- == 0) change(random);
        return left-- == 0 ? fault : RequestFault::none;
      });
      // What one update leaves, the next one of the same handle goes on with.
      auto mirror = open_mirror({&local_, kLocalRun}, process.home(), {});
      for (int update = 0; mirror && update < 2; ++update) static_cast<void>(mirror->update());
      process.objects->set_fault(nullptr);
      if (HasFatalFailure()) return;
      ASSERT_EQ(broken_law(still_in_run(before)), "") << "round " << round;
    }
    const auto done = Mirrorer(bucket_).mirror(local_);
    ASSERT_TRUE(done) << done.error().message();
    ASSERT_EQ(broken_law(steps_of_run()), "") << "round " << round;
    ASSERT_EQ(Mirrorer(bucket_).read().value()->steps().value(), writer()->steps().value());
    ASSERT_EQ(names_in_copy(), names_in_run()) << "round " << round;
    ASSERT_EQ(read_label_record(*Mirrorer(bucket_).files, RunLayout(kCopy)).value(),
              read_label_record(local_, RunLayout(kLocalRun)).value());
  }
}

INSTANTIATE_TEST_SUITE_P(Drawn, MirrorHistories, ::testing::Range<std::uint64_t>(0, 60));

}  // namespace
}  // namespace bitsnap::store
