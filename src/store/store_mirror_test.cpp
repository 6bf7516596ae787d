// Mirrors: copies of runs that change in drawn ways, in an object store whose requests fail at any moment.
#include "store/open_mirror.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "objects/object_file_system.hpp"
#include "objects/object_store_fake.hpp"
#include "os/file_system_fake.hpp"
#include "store/label_record.hpp"
#include "store/mirror_order.hpp"
#include "store/mirror_records.hpp"
#include "store/run_testing.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::store {
namespace {

using objects::FakeObjectStore;
using objects::LeaseTimes;
using objects::ObjectFileSystem;
using objects::RequestFault;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kLocalRun = "/run";
constexpr const char* kCopy = "s3://bucket/run";
const RunOptions kRunOnOne{1, nullptr};

// A process that mirrors; the one before it has ended, and its lease has run out.
struct Mirrorer {
  explicit Mirrorer(const FakeObjectStore& bucket)
      : objects(std::make_shared<FakeObjectStore>(bucket)),
        files(std::make_shared<ObjectFileSystem>("s3://bucket", objects, LeaseTimes{10'000, 30'000, 0, 0})) {}

  [[nodiscard]] Home home() const { return {files.get(), kCopy}; }
  [[nodiscard]] Result<MirrorReport> mirror(os::FileSystem& local, MirrorOptions options = {}) const {
    auto mirror = open_mirror({&local, kLocalRun}, home(), std::move(options));
    if (!mirror) return tl::unexpected(mirror.error());
    return mirror->update();
  }
  [[nodiscard]] Result<std::unique_ptr<Store>> read() const {
    return open_store(*files, kCopy, {.access = StoreAccess::read});
  }

  std::shared_ptr<FakeObjectStore> objects;
  std::shared_ptr<ObjectFileSystem> files;
};

class MirrorTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> writer(std::uint64_t keep_last = 0) {
    StoreOptions options;
    options.access = StoreAccess::write;
    options.settings.max_depth = 3;
    if (keep_last > 0) options.retention.keep_last = keep_last;
    return open_store(local_, kLocalRun, options).value();
  }

  void save(Store& store, std::uint64_t step, std::uint64_t seed = 0, bool replaces = false) {
    CommitOptions commit;
    commit.replace = replaces;
    const auto saved = store.save(step, TestState(step, seed).state(), kRunOnOne, nullptr, commit);
    ASSERT_TRUE(saved) << saved.error().message();
    seeds_[step] = seed;
    ever_[step].insert(seed);
  }

  // Empty if each checkpoint of the copy is one that the run has had, whole, and those of `must` are there as they are
  // in the run.
  std::string broken_law(const std::set<std::uint64_t>& must) {
    const auto copy = Mirrorer(bucket_).read();
    if (!copy) return must.empty() ? "" : copy.error().message();
    const auto steps = (*copy)->steps();
    if (!steps) return steps.error().message();
    for (const std::uint64_t step : must) {
      if (!std::ranges::binary_search(*steps, step)) return "step " + std::to_string(step) + " is lost";
      if (auto differs = check_step(**copy, step, TestState(step, seeds_.at(step))); !differs.empty()) return differs;
    }
    for (const std::uint64_t step : *steps) {
      std::string differs = "step " + std::to_string(step) + " was never saved";
      for (const std::uint64_t seed : ever_[step]) {
        differs = check_step(**copy, step, TestState(step, seed));
        if (differs.empty()) break;
      }
      if (!differs.empty()) return "step " + std::to_string(step) + ": " + differs;
    }
    return "";
  }

  std::set<std::uint64_t> steps_of_run() {
    const auto reader = open_store(local_, kLocalRun, {.access = StoreAccess::read}).value();
    const auto steps = reader->steps().value();
    return {steps.begin(), steps.end()};
  }

  // The files of the copy, without the lease, labels, and what says whose copy it is.
  std::vector<std::string> names_in_copy() {
    std::vector<std::string> names;
    for (const std::string& key : bucket_.keys()) {
      const std::string name = key.substr(std::string("run/").size());
      if (name != "lock" && name != "mirror-source.json" && name != "labels.json") names.push_back(name);
    }
    return names;
  }

  std::vector<std::string> names_in_run() {
    std::vector<std::string> names = {"bitsnap.json"};
    const std::vector<std::string> steps = local_.list_directory("/run/checkpoints").value();
    for (const std::string& step : steps) {
      const std::vector<std::string> files = local_.list_directory("/run/checkpoints/" + step).value();
      for (const std::string& name : files) names.push_back("checkpoints/" + step + "/" + name);
    }
    std::ranges::sort(names);
    return names;
  }

  // One change of the run.
  void change(std::mt19937_64& random) {
    const auto drawn = [&](std::uint64_t below) { return random() % below; };
    const auto store = writer(drawn(2) == 0 ? 0 : 2 + drawn(3));
    const auto steps = store->steps().value();
    const std::uint64_t next = steps.empty() ? 1 : steps.back() + 1;
    switch (steps.size() < 3 ? 0 : drawn(8)) {
      case 0:
      case 1:
      case 2:
      case 3: save(*store, next, drawn(2)); break;
      case 4: save(*store, steps.back(), 5 + drawn(9), true); break;
      case 5: ASSERT_TRUE(store->rollback(steps[drawn(steps.size())], kRunOnOne)); break;
      case 6: {
        Retention kept;
        kept.keep_last = 1 + drawn(3);
        const auto reencode = drawn(2) == 0 ? Reencode::always : Reencode::when_it_pays;
        ASSERT_TRUE(store->prune(kept, {.reencode = reencode, .run = kRunOnOne}));
        break;
      }
      default:
        if (drawn(2) == 0) {
          ASSERT_TRUE(store->label(steps[drawn(steps.size())], {"best"}));
        } else {
          ASSERT_TRUE(store->remove({steps[drawn(steps.size() - 1)]}, {.run = kRunOnOne}));
        }
    }
  }

  // The checkpoints of the copy with all that they need.
  std::map<std::uint64_t, MirroredSteps> checkpoints_of_copy() {
    const Mirrorer process(bucket_);
    std::map<std::uint64_t, MirroredSteps> found;
    if (!process.read()) return found;
    const MirroredSteps all = MirrorRecords(*process.files, RunLayout(kCopy)).read().value();
    for (const auto& [step, entry] : all) {
      if (entry.is_retired) continue;
      add_needed(found[step] = {{step, entry}}, all);
    }
    return found;
  }

  // Those that the run has as well. What a checkpoint needs may have been rolled back and saved again since: then the
  // copy has the checkpoint only when the update is complete.
  std::set<std::uint64_t> still_in_run(const std::map<std::uint64_t, MirroredSteps>& checkpoints) {
    const MirroredSteps run = MirrorRecords(local_, RunLayout(kLocalRun)).read().value();
    const auto is_same = [&](const auto& needed) {
      const auto now = run.find(needed.first);
      const CommitRecord& record = needed.second.record;
      return now != run.end() && now->second.record.time_unix_ms == record.time_unix_ms &&
             now->second.record.shards[0].id == record.shards[0].id;
    };
    std::set<std::uint64_t> steps;
    for (const auto& [step, needed] : checkpoints) {
      const auto now = run.find(step);
      const bool is_checkpoint = now != run.end() && !now->second.is_retired;
      const bool is_saved_again =
          std::ranges::any_of(needed, [&](const auto& each) { return run.contains(each.first) && !is_same(each); });
      if (is_checkpoint && is_same(*needed.find(step)) && !is_saved_again) steps.insert(step);
    }
    return steps;
  }

  os::FakeFileSystem local_;
  FakeObjectStore bucket_;
  std::map<std::uint64_t, std::uint64_t> seeds_;           // of the newest save of each step
  std::map<std::uint64_t, std::set<std::uint64_t>> ever_;  // of all saves
};

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
    const bool is_record = request == "put_if_absent" && key.ends_with("commit.json");
    return is_record ? RequestFault::dead : RequestFault::none;
  });
  ASSERT_FALSE(killed.mirror(local_));
  const auto again = Mirrorer(bucket_).mirror(local_);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->sent_bytes, 0U);
  EXPECT_THAT(again->added, ElementsAre(1, 2, 3));
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
