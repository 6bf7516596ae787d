// Failures that are not crashes: a file operation that fails once, a full disk, damaged bases, other writers, readers
// that race a prune, and ranks that race each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/crash_scenarios_testing.hpp"
#include "store/crash_trial_testing.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

using os::FakeFileSystem;
using os::FaultyFileSystem;

StoreOptions short_chains() {
  StoreOptions options;
  options.access = StoreAccess::write;
  options.settings.max_depth = 2;
  return options;
}

StoreOptions shared() {
  StoreOptions options = short_chains();
  options.access = StoreAccess::shared;
  return options;
}

std::unique_ptr<Store> open_run(os::FileSystem& files, const StoreOptions& options = short_chains()) {
  auto store = open_store(files, kTestRun, options);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

Journal saved(FakeFileSystem& files, std::uint64_t first, std::uint64_t last) {
  Journal journal;
  const auto store = open_run(files);
  for (std::uint64_t step = first; step <= last; ++step) EXPECT_TRUE(save_step(*store, journal, step));
  return journal;
}

Retention keep_last(std::uint64_t count) {
  Retention retention;
  retention.keep_last = count;
  return retention;
}

// Does something just before one operation of a file system, between two operations of its user.
class Intruder {
 public:
  Intruder(FaultyFileSystem& files, std::uint64_t point, std::function<void()> intrude)
      : files_(files), point_(point), intrude_(std::move(intrude)) {
    files_.watch([this](const FaultyFileSystem::Step&) {
      if (at_++ != point_) return;
      has_come_ = true;
      intrude_();
    });
  }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;
  ~Intruder() { files_.watch(nullptr); }

  // False if there were fewer operations than `point`.
  [[nodiscard]] bool has_come() const noexcept { return has_come_; }

 private:
  FaultyFileSystem& files_;
  const std::uint64_t point_;
  const std::function<void()> intrude_;
  std::uint64_t at_ = 0;
  bool has_come_ = false;
};

class StoreFailure : public testing::TestWithParam<std::string> {};

TEST_P(StoreFailure, ASingleFailureLosesNothing) {
  CrashTrial trial(crash_scenario(GetParam()));
  for (std::uint64_t point = 0; point < trial.steps().size(); point += takes_samples() ? 9U : 1U) {
    for (const bool half_done : {false, true}) {
      if (half_done && !changes_something(trial.steps()[point])) continue;  // it is the same failure
      const Stopped stopped = trial.fail_once_at(point, half_done);
      ASSERT_EQ(trial.check_left(*stopped.files, stopped.journal), "")
          << trial.at(point) << (half_done ? ", half done" : "");
    }
  }
  RecordProperty("cases", std::to_string(trial.cases()));
  std::cout << GetParam() << ": " << trial.cases() << " cases, " << trial.different_cases() << " different disks\n";
}

INSTANTIATE_TEST_SUITE_P(Every, StoreFailure, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const CrashScenario& scenario : crash_scenarios()) names.push_back(scenario.name);
                           return names;
                         }()),
                         [](const auto& test) { return test.param; });

// Each call of a handle meets one failure. Then the same handle continues, or asks to be reopened.
TEST(StoreFailures, TheHandleContinuesOrAsksToBeReopened) {
  using Call = std::function<Result<void>(Store&, Journal&)>;
  const std::vector<std::pair<std::string, Call>> calls = {
      {"save", [](Store& store, Journal& journal) { return save_step(store, journal, 6); }},
      {"prune", [](Store& store, Journal& journal) { return prune_steps(store, journal, keep_last(2)); }},
      {"rewrite",
       [](Store& store, Journal& journal) { return prune_steps(store, journal, keep_last(1), Reencode::always); }},
      {"roll back", [](Store& store, Journal& journal) { return roll_back(store, journal, 3); }},
  };
  FakeFileSystem before;
  const Journal run = saved(before, 1, 5);
  for (const auto& [name, call] : calls) {
    bool is_done = false;
    std::size_t went_on = 0;
    std::size_t gave_up = 0;
    for (std::uint64_t point = 0; !is_done; point += takes_samples() ? 7U : 1U) {
      const auto files = before.copy();
      FaultyFileSystem faulty(*files);
      Journal journal = run;
      {
        const auto store = open_run(faulty);
        faulty.reset();
        faulty.fail_at(point, {.kind = ErrorKind::io, .lasting = false, .half_done = point % 2 == 1});
        static_cast<void>(call(*store, journal));
        is_done = faulty.failures() == 0;
        faulty.reset();
        TestRun shown;
        ASSERT_EQ(check_shown(*files, journal.allowed(), &shown), "") << name << " failed at " << point;
        // The failed change is not there, or not known to be there; the next call finds out.
        Journal next(shown);
        const std::uint64_t step = shown.rbegin()->first + 1;
        const Result<void> again = save_step(*store, next, step, 9);
        if (again) {
          journal = next;
          ++went_on;
        } else {
          EXPECT_NE(again.error().message().find("open the store again"), std::string::npos)
              << name << " failed at " << point << ", then: " << again.error().message();
          ++gave_up;
        }
      }
      ASSERT_EQ(broken_law(*files, journal.allowed(), short_chains()), "") << name << " failed at " << point;
    }
    // A failed save removes what it wrote. Only if that fails, too, the handle gives up. The other calls leave nothing
    // that opening could not settle, and the next call settles the store as opening does.
    if (name == "save") {
      EXPECT_GT(went_on, 10 * gave_up);
    } else {
      EXPECT_GT(went_on, takes_samples() ? 2U : 10U) << name;
      EXPECT_EQ(gave_up, 0U) << name;
    }
  }
}

// While the disk refuses, each writing call returns an error. The first call after that succeeds.
TEST(StoreFailures, AHandleContinuesWhenTheDiskIsBack) {
  FakeFileSystem files;
  Journal journal = saved(files, 1, 4);
  FaultyFileSystem faulty(files);
  const auto store = open_run(faulty);
  faulty.reset();
  faulty.fail_at(os::FileOperation::sync_directory, 1, {.kind = ErrorKind::io, .lasting = false, .half_done = false});
  EXPECT_FALSE(roll_back(*store, journal, 1));
  for (int i = 0; i < 3; ++i) {
    faulty.reset();
    faulty.fail_at(os::FileOperation::sync_directory, 0, {.kind = ErrorKind::io, .lasting = false, .half_done = false});
    const auto refused = store->save(9, test_state(9, 0).state(), kOneThread);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind(), ErrorKind::io);
  }
  faulty.reset();
  const std::vector<std::uint64_t> left = {1, 2};
  EXPECT_EQ(store->steps().value(), left);
  const auto saved_again = store->save(9, test_state(9, 0).state(), kOneThread);
  ASSERT_TRUE(saved_again) << saved_again.error().message();
  EXPECT_EQ(saved_again->base, left.back());
  EXPECT_TRUE(store->rollback(left.back()));
  EXPECT_EQ(store->steps().value(), left);
}

TEST(StoreFailures, AFullDiskFailsTheSaveAndFreesItsSpace) {
  FakeFileSystem before;
  const Journal run = saved(before, 1, 2);
  const auto used_by = [](FakeFileSystem& files) {
    std::uint64_t used = 0;
    for (const std::string& file : files.all_files()) used += files.stat(file)->size_bytes;
    return used;
  };
  const std::uint64_t used = used_by(before);
  bool is_saved = false;
  for (std::uint64_t free = 0; !is_saved; free += takes_samples() ? 997U : 97U) {
    ASSERT_LT(free, 1U << 20);
    const auto files = before.copy();
    files->limit_space(used + free);
    Journal journal = run;
    {
      const auto store = open_run(*files);
      const Result<void> result = save_step(*store, journal, 3);
      is_saved = result.has_value();
      if (!is_saved) {
        EXPECT_EQ(result.error().kind(), ErrorKind::io);
        EXPECT_EQ(used_by(*files), used) << free;
        EXPECT_EQ(check_shown(*files, {run.run()}), "");
        files->limit_space(~std::uint64_t{0});
        ASSERT_TRUE(save_step(*store, journal, 3));
      }
    }
    files->limit_space(~std::uint64_t{0});
    ASSERT_EQ(broken_law(*files, journal.allowed(), short_chains()), "") << free;
  }
}

TEST(StoreFailures, SavesAKeyframeIfTheBaseIsUnusable) {
  FakeFileSystem before;
  static_cast<void>(saved(before, 1, 2));
  const RunLayout layout(kTestRun);
  for (const std::string& file : {layout.step_file(2, "shard-00000-of-00001.bsnap"), layout.commit(2),
                                  layout.step_file(1, "shard-00000-of-00001.bsnap"), layout.commit(1)}) {
    const auto whole = os::read_file(before, file, 1 << 20);
    // The file is removed, cut in half, or has one flipped bit in one of 20 places.
    const bool is_record = file.ends_with(".json");
    for (std::size_t way = 0; way < 22; ++way) {
      const auto files = before.copy();
      std::vector<std::byte> bytes = *whole;
      if (way == 1) bytes.resize(bytes.size() / 2);
      if (way >= 2) bytes[(way - 2) * (bytes.size() - 1) / 19] ^= std::byte{4};
      if (way == 0) {
        ASSERT_TRUE(files->remove(file));
      } else {
        files->plant(file, bytes);
      }
      const auto store = open_run(*files);
      const auto result = store->save(3, test_state(3, 0).state(), kOneThread);
      ASSERT_TRUE(result) << file << " " << way << ": " << result.error().message();
      EXPECT_EQ(check_step(*store, 3, test_state(3, 0)), "") << file << " " << way;
      // Damage that no read touches is not found; then the checkpoint is coded against the undamaged parts. A step
      // without a record is no checkpoint, so if the newest has lost its record, the one before it is the base.
      const bool is_gone = is_record && way == 0;
      EXPECT_TRUE(result->damage || result->base || is_gone) << file << " " << way;
      EXPECT_FALSE(result->damage && result->base);
      EXPECT_TRUE(way != 1 || result->damage) << file;
      // The next save finds no damage any more.
      const auto next = store->save(4, test_state(4, 0).state(), kOneThread);
      ASSERT_TRUE(next) << next.error().message();
      EXPECT_EQ(check_step(*store, 4, test_state(4, 0)), "") << file << " " << way;
      EXPECT_FALSE(result->damage && next->damage) << file << " " << way;
    }
  }
}

TEST(StoreFailures, RefusesASecondWriter) {
  FakeFileSystem files;
  const auto first = open_run(files);
  const auto second = open_store(files, kTestRun, short_chains());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind(), ErrorKind::busy);
  const auto rank = open_run(files, shared());
  const auto refused = rank->save_shard(1, {0, 1, "a"}, test_state(1, 0).state());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind(), ErrorKind::busy);
  EXPECT_TRUE(first->save(1, test_state(1, 0).state()));
}

TEST(StoreFailures, AnOpenReaderContinuesAfterAPrune) {
  FakeFileSystem files;
  Journal journal = saved(files, 1, 6);
  const auto reader = open_run(files, {});
  std::vector<std::shared_ptr<const Snapshot>> opened;
  for (std::uint64_t step = 1; step <= 6; ++step) opened.push_back(reader->snapshot(step).value());
  const auto writer = open_run(files);
  ASSERT_TRUE(prune_steps(*writer, journal, keep_last(1), Reencode::always));
  for (std::uint64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(difference(*opened[step - 1], test_state(step, 0)), "") << step;
  }
}

// A prune runs between two operations of a reader, at every point.
TEST(StoreFailures, AReaderThatRacesAPruneGetsDataOrNotFound) {
  FakeFileSystem before;
  const Journal run = saved(before, 1, 6);
  std::size_t read = 0;
  std::size_t gone = 0;
  for (const Reencode reencode : {Reencode::never, Reencode::always}) {
    for (std::uint64_t step = 1; step <= 6; ++step) {
      bool has_raced = true;
      for (std::uint64_t point = 0; has_raced; ++point) {
        const auto files = before.copy();
        FaultyFileSystem watched(*files);
        Journal journal = run;
        const auto reader = open_run(watched, {});
        const Intruder intruder(watched, point, [&] {
          Retention retention = keep_last(1);
          retention.keep = {3};
          EXPECT_TRUE(prune_steps(*open_run(*files), journal, retention, reencode));
        });
        const auto snapshot = reader->snapshot(step);
        if (snapshot) {
          ++read;
          EXPECT_EQ(difference(**snapshot, test_state(step, 0)), "") << step << " at " << point;
        } else {
          ++gone;
          EXPECT_EQ(snapshot.error().kind(), ErrorKind::not_found)
              << step << " at " << point << ": " << snapshot.error().message();
          EXPECT_TRUE(step != 3 && step != 6) << step << " at " << point << ": " << snapshot.error().message();
        }
        has_raced = intruder.has_come();
      }
    }
  }
  EXPECT_GT(read, 100U);
  EXPECT_GT(gone, 20U);
}

// The only checkpoint is replaced after a reader has listed the names, and before it looks at the checkpoint.
TEST(StoreFailures, ReadersAlwaysSeeACheckpoint) {
  for (const bool asks_for_newest : {true, false}) {
    FakeFileSystem files;
    Journal journal = saved(files, 1, 1);
    FaultyFileSystem watched(files);
    const auto reader = open_run(watched, {});
    bool is_done = false;
    watched.watch([&](const FaultyFileSystem::Step& step) {
      if (is_done || step.path != RunLayout(kTestRun).commit(1)) return;
      is_done = true;
      const auto writer = open_run(files);
      ASSERT_TRUE(save_step(*writer, journal, 2));
      ASSERT_TRUE(prune_steps(*writer, journal, keep_last(1)));
    });
    if (asks_for_newest) {
      EXPECT_TRUE(reader->snapshot());
    } else {
      EXPECT_EQ(reader->steps().value(), std::vector<std::uint64_t>{2});
    }
    EXPECT_TRUE(is_done);
  }
}

// A removed step may come back in a crash, so the handle syncs the removal before it continues.
TEST(StoreFailures, ASharedHandleRetriesFailedRemovals) {
  FakeFileSystem before;
  saved(before, 1, 4);
  for (std::uint64_t point = 0;; ++point) {
    const auto files = before.copy();
    FaultyFileSystem faulty(*files);
    auto store = open_run(faulty, shared());
    faulty.reset();
    faulty.fail_at(point, {.kind = ErrorKind::io, .lasting = false, .half_done = point % 2 == 1});
    if (store->rollback(3)) break;
    faulty.reset();
    const auto shown = store->steps().value();
    const bool is_removed = std::ranges::find(shown, 4U) == shown.end();
    ASSERT_TRUE(store->save_shard(5, {0, 1, "a"}, test_state(5, 0).state(), kOneThread));
    ASSERT_TRUE(store->commit(5, 1, "a"));
    store.reset();
    files->crash();
    const auto steps = open_run(*files, {})->steps().value();
    if (is_removed) {
      EXPECT_EQ(steps, (std::vector<std::uint64_t>{1, 2, 3, 5})) << point;
    }
  }
}

TEST(StoreFailures, IgnoresDamageInUnneededShards) {
  const auto saved_bytes = [](bool is_damaged) {
    FakeFileSystem files;
    const auto store = open_run(files, shared());
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
      EXPECT_TRUE(store->save_shard(1, {rank, 4, "a"}, test_state(1, rank).state(), kOneThread));
    }
    EXPECT_TRUE(store->commit(1, 4, "a"));
    if (is_damaged) {
      EXPECT_TRUE(files.remove(RunLayout(kTestRun).step_file(1, "shard-00001-of-00004.a.bsnap")));
    }
    // This state has a tensor that no rank had before.
    const auto saved = store->save_shard(2, {0, 4, "b"}, test_state(1, 2000).state(), kOneThread);
    return saved ? saved->stored_bytes : 0;
  };
  EXPECT_EQ(saved_bytes(true), saved_bytes(false));
}

TEST(StoreFailures, VerificationThatRacesAPruneFindsNoDamage) {
  FakeFileSystem before;
  const Journal run = saved(before, 1, 5);
  for (const Reencode reencode : {Reencode::never, Reencode::always}) {
    bool has_raced = true;
    for (std::uint64_t point = 0; has_raced; point += takes_samples() ? 7U : 1U) {
      const auto files = before.copy();
      FaultyFileSystem watched(*files);
      Journal journal = run;
      const auto reader = open_run(watched, {});
      const Intruder intruder(watched, point,
                              [&] { EXPECT_TRUE(prune_steps(*open_run(*files), journal, keep_last(1), reencode)); });
      StoreVerifyOptions options;
      options.run = kOneThread;
      const auto verified = reader->verify(options);
      has_raced = intruder.has_come();
      ASSERT_TRUE(verified) << verified.error().message();
      EXPECT_TRUE(verified->damages.empty()) << "at " << point << ": " << verified->damages.front().file << ": "
                                             << verified->damages.front().error.message();
    }
  }
}

// One rank commits at every point of another rank's commit.
TEST(StoreFailures, ConcurrentCommitsAgree) {
  FakeFileSystem before;
  Journal run;
  {
    const auto a = open_run(before, shared());
    ASSERT_TRUE(save_two_shards(*a, *a, run, 1));
    for (const std::uint32_t shard : {0U, 1U}) {
      ASSERT_TRUE(a->save_shard(2, {shard, 2, "a1"}, test_state(2, shard).state(), kOneThread));
    }
  }
  TestRun after = run.run();
  after[2] = {0, 2};
  bool has_raced = true;
  for (std::uint64_t point = 0; has_raced; ++point) {
    const auto files = before.copy();
    FaultyFileSystem watched(*files);
    const auto a = open_run(watched, shared());
    const auto b = open_run(*files, shared());
    const Intruder intruder(watched, point, [&] {
      const auto committed = b->commit(2, 2, "a1");
      ASSERT_TRUE(committed) << committed.error().message();
      EXPECT_TRUE(*committed);
    });
    const auto committed = a->commit(2, 2, "a1");
    has_raced = intruder.has_come();
    ASSERT_TRUE(committed) << "at " << point << ": " << committed.error().message();
    EXPECT_TRUE(*committed) << "at " << point;
    files->crash();
    ASSERT_EQ(broken_law(*files, {after}, short_chains()), "") << "at " << point;
  }
}

TEST(StoreFailures, ShardsOfTwoAttemptsNeverMix) {
  FakeFileSystem files;
  Journal journal;
  const auto a = open_run(files, shared());
  const auto b = open_run(files, shared());
  ASSERT_TRUE(save_two_shards(*a, *b, journal, 1));
  // In the first attempt one rank dies; in the second, the other rank is late.
  ASSERT_TRUE(a->save_shard(2, {0, 2, "first"}, test_state(2, 100).state(), kOneThread));
  ASSERT_TRUE(b->save_shard(2, {1, 2, "second"}, test_state(2, 201).state(), kOneThread));
  EXPECT_EQ(a->commit(2, 2, "first").value().missing, std::vector<std::uint32_t>{1});
  EXPECT_EQ(b->commit(2, 2, "second").value().missing, std::vector<std::uint32_t>{0});
  EXPECT_EQ(check_shown(files, {journal.run()}), "");
  ASSERT_TRUE(a->save_shard(2, {0, 2, "second"}, test_state(2, 200).state(), kOneThread));
  EXPECT_TRUE(a->commit(2, 2, "second").value());
  TestRun after = journal.run();
  after[2] = {2, 2};
  EXPECT_EQ(check_shown(files, {after}), "");
  // The rank of the first attempt comes back to life.
  EXPECT_FALSE(b->save_shard(2, {1, 2, "first"}, test_state(2, 101).state(), kOneThread));
  EXPECT_FALSE(b->commit(2, 2, "first"));
  EXPECT_EQ(broken_law(files, {after}, short_chains()), "");
}

}  // namespace
}  // namespace bitsnap::store
