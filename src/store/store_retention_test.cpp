// A store with a retention over drawn trainings: at no moment does it hold more than its checkpoints would take as
// standalone files and one more while a save runs, and every kept checkpoint is restored bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sanitizers_testing.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"
#include "codec/trained_like_testing.hpp"
#include "os/file_system_fake.hpp"
#include "store/commit_record.hpp"
#include "store/store_calls_testing.hpp"
#include "store/store_impl.hpp"
#include "store/store_laws_testing.hpp"

namespace bitsnap::store {
namespace {

// Records and directories are no part of the law.
constexpr std::uint64_t kRecordBytes = 3000;

std::uint64_t snapshot_bytes(os::FakeFileSystem& files) {
  std::uint64_t bytes = 0;
  for (const std::string& file : files.all_files()) {
    if (file.ends_with(".bsnap")) bytes += files.stat(file)->size_bytes;
  }
  return bytes;
}

State state_of(const TestState& from) {
  State state = from.state();
  for (TensorSource& tensor : state.tensors) tensor.info.role = guess_role(tensor.info.name, tensor.info.dtype);
  return state;
}

// What one save of it takes in a store of its own.
std::uint64_t alone_bytes(const TestState& state) {
  os::FakeFileSystem files;
  EXPECT_TRUE(open(files)->save(1, state_of(state), kOneThread));
  return snapshot_bytes(files);
}

struct Schedule {
  Retention retention;
  std::size_t elements = 0;
  std::size_t frozen_bytes = 0;
  std::uint64_t steps_between = 1;  // optimizer steps between two saves
  std::uint64_t saves = 0;
  bool opens_each = false;
  bool is_unlike = false;  // each state is a new one
  bool replaces = false;   // each step is saved twice
  BaseRule base = BaseRule::previous;
  std::uint32_t max_depth = 8;
  std::uint64_t most = 0;  // the checkpoints that stay when others are removed by name; 0: the retention decides
};

class DrawnTraining {
 public:
  explicit DrawnTraining(const Schedule& schedule, std::uint64_t seed)
      : schedule_(schedule), seed_(seed), trained_(codec::trained_state(schedule.elements, seed)) {
    frozen_.resize(schedule.frozen_bytes);
    codec::fill_trained_like(DType::f32, frozen_, static_cast<unsigned>(seed));
  }

  TestState next() {
    for (std::uint64_t i = 0; i < schedule_.steps_between; ++i) codec::take_step(trained_, {}, ++seed_);
    if (schedule_.is_unlike) trained_ = codec::trained_state(schedule_.elements, ++seed_ * 977);
    TestState state;
    state.add("master.w", DType::f32, codec::trained_bytes(trained_.x));
    state.add("exp_avg.w", DType::f32, codec::trained_bytes(trained_.m));
    state.add("exp_avg_sq.w", DType::f32, codec::trained_bytes(trained_.v));
    if (!frozen_.empty()) state.add("frozen", DType::f32, frozen_);
    return state;
  }

 private:
  const Schedule& schedule_;
  std::uint64_t seed_;
  codec::TrainedState trained_;
  std::vector<std::byte> frozen_;
};

struct Totals {
  std::uint64_t held = 0, alone = 0, written = 0, saves = 0, written_alone = 0;
};

// Runs a schedule and checks the law after each save.
void run(const Schedule& schedule, std::uint64_t seed, Totals& totals) {
  os::FakeFileSystem files;
  StoreOptions options = writing();
  options.retention = schedule.retention;
  options.settings.base = schedule.base;
  options.settings.max_depth = schedule.max_depth;
  std::unique_ptr<Store> store;
  codec::TestRandom random(seed);
  DrawnTraining training(schedule, seed);
  std::map<std::uint64_t, TestState> states;
  std::map<std::uint64_t, std::uint64_t> alone;
  for (std::uint64_t save = 1; save <= schedule.saves; ++save) {
    if (schedule.opens_each) store = nullptr;
    if (store == nullptr) store = open(files, options);
    const std::uint64_t step = save * schedule.steps_between;
    states.emplace(step, training.next());
    const std::uint64_t before = snapshot_bytes(files);
    alone.emplace(step, alone_bytes(states.at(step)));
    if (schedule.replaces) {
      const TestState first = training.next();
      ASSERT_TRUE(store->save(step, state_of(first), kOneThread));
      ASSERT_EQ(check_step(*store, step, first), "");
    }
    auto saved = store->save(step, state_of(states.at(step)), kOneThread, nullptr, {.replace = schedule.replaces});
    ASSERT_TRUE(saved) << saved.error().message();
    if (schedule.most > 0) {
      saved->pruned.emplace();
      for (std::vector<std::uint64_t> steps = store->steps().value(); steps.size() > schedule.most;) {
        const std::uint64_t gone = steps[random.below(steps.size() - (random.below(8) > 0 ? 1 : 0))];
        const auto removed = store->remove({gone}, {.run = kOneThread});
        ASSERT_TRUE(removed) << removed.error().message();
        std::ranges::copy(removed->rewritten, std::back_inserter(saved->pruned->rewritten));
        steps = store->steps().value();
      }
    }
    ASSERT_FALSE(saved->prune_error) << saved->prune_error->message();
    ASSERT_FALSE(saved->damage) << saved->damage->message();
    totals.written += saved->stored_bytes;
    for (const auto& rewritten : saved->pruned->rewritten) totals.written += rewritten.bytes_after;
    totals.written_alone += alone.at(step);

    std::uint64_t again = 0;
    for (const auto& rewritten : saved->pruned->rewritten) again = std::max(again, rewritten.bytes_after);
    const std::vector<std::uint64_t> steps = store->steps().value();
    if (steps.back() != step) continue;
    // The most while it was saved: nothing was removed before the commit, and one file is written again at a time.
    if (schedule.most == 0 && !schedule.replaces) {
      EXPECT_LE(std::max(before + saved->stored_bytes, snapshot_bytes(files) + again),
                (steps.size() + 1) * (saved->raw_bytes + kRecordBytes))
          << "after step " << step;
    }
    std::uint64_t allowed = kRecordBytes * steps.size();
    std::uint64_t kept_alone = 0;
    for (const std::uint64_t kept : steps) kept_alone += alone.at(kept);
    allowed += kept_alone + kept_alone / 50;  // what a delta would take alone is estimated
    const std::uint64_t held = snapshot_bytes(files);
    ASSERT_LE(held, allowed) << fmt::format("after step {}, {} kept", step, steps.size());
    if (schedule.most == 0) {
      EXPECT_LE(store->checkpoint(step)->depth, 1U);
    }
    totals.held += held;
    totals.alone += kept_alone;
    ++totals.saves;
  }
  const std::vector<std::uint64_t> kept = store->steps().value();
  for (const std::uint64_t step : kept) ASSERT_EQ(check_step(*store, step, states.at(step)), "");
  ASSERT_TRUE(store->verify()->damages.empty());
}

Schedule drawn(codec::TestRandom& random) {
  const auto below = [&](std::uint64_t end) { return random.next() % end; };
  Schedule schedule;
  schedule.elements = 1100 + below(3000);
  if (below(3) == 0) schedule.frozen_bytes = 4 * (1100 + below(20'000));
  schedule.steps_between = 1 + below(3) * below(10);
  schedule.saves = 2 + below(12);
  schedule.opens_each = below(2) == 0;
  schedule.is_unlike = below(8) == 0;
  schedule.replaces = below(8) == 0;
  if (below(4) == 0) schedule.base = BaseRule::keyframe;
  if (below(4) == 0) schedule.max_depth = static_cast<std::uint32_t>(below(4));
  if (below(3) == 0) {
    schedule.most = 1 + below(5);
    return schedule;
  }
  if (below(5) > 0) schedule.retention.keep_last = 1 + below(6);
  if (!schedule.retention.keep_last || below(4) == 0) {
    schedule.retention.keep_every = (2 + below(5)) * schedule.steps_between;
  }
  return schedule;
}

TEST(StoreRetention, HoldsNoMoreThanStandaloneFilesOverDrawnSchedules) {
  // BITSNAP_SCHEDULES=10000 takes five minutes.
  const char* const asked = std::getenv("BITSNAP_SCHEDULES");
  const bool is_quick = kHasSanitizer || std::getenv("BITSNAP_QUICK_TESTS") != nullptr;
  const std::uint64_t schedules = asked != nullptr ? std::stoull(asked) : is_quick ? 100 : 600;
  Totals totals;
  for (std::uint64_t seed = 1; seed <= schedules; ++seed) {
    codec::TestRandom random(seed);
    const Schedule schedule = drawn(random);
    SCOPED_TRACE(fmt::format(
        "seed {}: {} elements, {} frozen bytes, {} steps between {} saves, keep_last {}, keep_every {}, most {}, "
        "max_depth {}{}{}{}{}",
        seed, schedule.elements, schedule.frozen_bytes, schedule.steps_between, schedule.saves,
        schedule.retention.keep_last.value_or(0), schedule.retention.keep_every.value_or(0), schedule.most,
        schedule.max_depth, schedule.opens_each ? ", opened for each" : "", schedule.is_unlike ? ", unlike" : "",
        schedule.replaces ? ", replaces" : "", schedule.base == BaseRule::keyframe ? ", keyframe" : ""));
    run(schedule, seed, totals);
    if (testing::Test::HasFailure()) return;
  }
  printf("held %.3f of standalone, written %.3f\n",
         static_cast<double>(totals.held) / static_cast<double>(totals.alone),
         static_cast<double>(totals.written) / static_cast<double>(totals.written_alone));
}

TEST(StoreRetention, HoldsLittleForStatesThatAreOneStepApart) {
  for (const auto& [steps, keep, most] : {std::tuple(1U, 5U, 0.55), {1U, 2U, 0.75}, {5U, 2U, 1.001}, {5U, 5U, 0.97}}) {
    Schedule schedule;
    schedule.elements = 60'000;
    schedule.steps_between = steps;
    schedule.saves = 14;
    schedule.retention.keep_last = keep;
    Totals totals;
    run(schedule, 7, totals);
    const double held = static_cast<double>(totals.held) / static_cast<double>(totals.alone);
    const double written = static_cast<double>(totals.written) / static_cast<double>(totals.written_alone);
    printf("%u steps apart, keeping %u: held %.3f, written %.3f\n", steps, keep, held, written);
    EXPECT_LT(held, most) << steps << " " << keep;
    EXPECT_LT(written, 1.5) << steps << " " << keep;
  }
}

// Policies whose chunks cannot all be coded again as they were.
TEST(StoreRetention, HoldsNoMoreThanStandaloneFilesOfLossyStates) {
  for (const Policy policy : {Policy::bitsnap, Policy::lmc}) {
    SCOPED_TRACE(policy_name(policy));
    os::FakeFileSystem files;
    StoreOptions options = writing();
    options.retention.keep_last = 4;
    options.settings.policy = policy;
    const auto store = open(files, options);
    Schedule schedule;
    schedule.elements = 6000;
    DrawnTraining training(schedule, 5);
    std::map<std::uint64_t, std::uint64_t> alone;
    for (std::uint64_t step = 1; step <= 10; ++step) {
      const TestState state = training.next();
      os::FakeFileSystem others;
      StoreOptions other = writing();
      other.settings.policy = policy;
      ASSERT_TRUE(open(others, other)->save(1, state_of(state), kOneThread));
      alone.emplace(step, snapshot_bytes(others));
      const auto saved = store->save(step, state_of(state), kOneThread);
      ASSERT_TRUE(saved) << saved.error().message();
      std::uint64_t allowed = 0;
      for (std::uint64_t kept = step > 3 ? step - 3 : 1; kept <= step; ++kept)
        allowed += alone.at(kept) * 51 / 50 + 3000;
      EXPECT_LE(snapshot_bytes(files), allowed) << step;
    }
    EXPECT_TRUE(store->verify()->damages.empty());
  }
}

// Steps 4 to 6, of which 4 is coded against 5, and 5 against 6.
class LaterBases : public testing::Test {
 protected:
  void SetUp() override {
    options_ = writing();
    options_.retention.keep_last = 3;
    store_ = open(files_, options_);
    for (std::uint64_t step = 1; step <= 6; ++step) ASSERT_TRUE(store_->save(step, TestState(step).state()));
    ASSERT_EQ(store_->checkpoint(4)->base, 5U);
    ASSERT_EQ(store_->checkpoint(5)->base, 6U);
    ASSERT_EQ(store_->checkpoint(6)->base, std::nullopt);
  }

  void expect_whole(const std::vector<std::uint64_t>& steps) {
    EXPECT_EQ(store_->steps().value(), steps);
    for (const std::uint64_t step : steps) EXPECT_EQ(check_step(*store_, step, TestState(step)), "");
    EXPECT_TRUE(store_->verify()->damages.empty());
  }

  os::FakeFileSystem files_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

TEST_F(LaterBases, AreReadByWhoeverOpensTheStore) {
  store_ = nullptr;
  store_ = open(files_, options_);
  expect_whole({4, 5, 6});
}

// The file of step 6 is not read: its state is still in memory.
TEST_F(LaterBases, AreCodedAgainFromMemory) {
  const std::string file = "/run/checkpoints/0000000006/shard-00000-of-00001.bsnap";
  std::vector<std::byte> bytes = os::read_file(files_, file, 1 << 20).value();
  bytes[70] ^= std::byte{1};  // of the first payload
  files_.plant(file, bytes);
  const auto saved = store_->save(7, TestState(7).state());
  ASSERT_TRUE(saved && !saved->prune_error);
  ASSERT_EQ(saved->pruned->rewritten.size(), 1U);
  EXPECT_EQ(saved->pruned->rewritten[0].step, 6U);
  expect_whole({5, 6, 7});
}

TEST_F(LaterBases, GoWithARollbackAfterTheOthersAreRewritten) {
  ASSERT_TRUE(store_->rollback(5));
  expect_whole({4, 5});
  EXPECT_EQ(store_->checkpoint(4)->base, 5U);
  EXPECT_EQ(store_->checkpoint(5)->base, std::nullopt);
  ASSERT_TRUE(store_->save(6, TestState(6).state()));
  expect_whole({4, 5, 6});
}

TEST_F(LaterBases, GoByNameAfterTheOthersAreRewritten) {
  ASSERT_TRUE(store_->remove({6}));
  expect_whole({4, 5});
  ASSERT_TRUE(store_->remove({5}));
  expect_whole({4});
}

TEST_F(LaterBases, CanBeReplaced) {
  ASSERT_TRUE(store_->save(6, TestState(60).state(), kOneThread, nullptr, {.replace = true}));
  EXPECT_EQ(check_step(*store_, 6, TestState(60)), "");
  for (const std::uint64_t step : {4U, 5U}) EXPECT_EQ(check_step(*store_, step, TestState(step)), "");
  EXPECT_TRUE(store_->verify()->damages.empty());
}

TEST_F(LaterBases, AreFoundAgainByARepairOfLostRecords) {
  for (const std::vector<std::uint64_t>& lost : {std::vector<std::uint64_t>{4}, {5}, {4, 5}, {6}, {5, 6}}) {
    store_ = nullptr;
    const std::unique_ptr<os::FakeFileSystem> copy = files_.copy();
    os::FakeFileSystem& files = *copy;
    for (const std::uint64_t step : lost) {
      ASSERT_TRUE(files.remove(fmt::format("{}/checkpoints/{:010}/commit.json", kTestRun, step)));
    }
    const auto report = repair_store(files, kTestRun, {});
    ASSERT_TRUE(report) << report.error().message();
    for (const auto& dropped : report->dropped) {
      for (const auto& damage : dropped.damages) ADD_FAILURE() << dropped.step << ": " << damage.error.message();
    }
    store_ = open(files, options_);
    expect_whole({4, 5, 6});
    store_ = nullptr;
  }
}

TEST_F(LaterBases, ThatReferToThemselvesAreCorrupt) {
  store_ = nullptr;
  const RunLayout layout(kTestRun);
  CommitRecord newest = read_commit_record(files_, layout, 6).value();
  CommitRecord other = read_commit_record(files_, layout, 5).value();
  other.shards[0].references[0].standalone = false;
  ASSERT_TRUE(replace_commit_record(files_, layout, other, false));
  newest.shards[0].references = {{other.shards[0].id, 5, 0, false}};
  ASSERT_TRUE(replace_commit_record(files_, layout, newest, false));
  StoreOptions options;
  const auto opened = open(files_, options)->snapshot(6, 0);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().kind(), ErrorKind::corrupt);
  EXPECT_NE(opened.error().message().find("refers to itself"), std::string::npos) << opened.error().message();
}

}  // namespace
}  // namespace bitsnap::store
