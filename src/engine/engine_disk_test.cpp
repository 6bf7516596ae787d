// An agent on disks that are slow, full, faulty once or for good, or lose unsynced writes.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "engine/slot_layout.hpp"
#include "os/clock.hpp"
#include "os/file_system_fake.hpp"
#include "os/file_system_faulty.hpp"
#include "store/store_impl.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using os::FaultyFileSystem;
using os::FileOperation;

// A small state that changes a little each step, so that many runs are fast.
struct SmallState {
  save::Bytes weight = save::bf16_weights(4096, 1);
  save::Bytes other = save::random_bytes(100, 2);

  void step() { save::change(weight, 7, 1); }
  [[nodiscard]] State state() const {
    State made;
    made.tensors.push_back(save::source("w", DType::bf16, {4096}, weight));
    made.tensors.push_back(save::source("other", DType::u8, {100}, other));
    return made;
  }
  [[nodiscard]] bool is(const Snapshot& snapshot) const {
    return save::read_tensor(snapshot, "w") == weight && save::read_tensor(snapshot, "other") == other;
  }
};

class EngineDiskTest : public ::testing::Test {
 protected:
  // A directory that exists only on the fake disk.
  static constexpr const char* kPath = "/bitsnap-of-a-test/run";

  EngineDiskTest() {
    static_cast<void>(disk_.create_directory("/bitsnap-of-a-test"));
    static_cast<void>(disk_.sync_directory("/"));
  }

  EngineOptions options() const {
    EngineOptions options;
    options.path = kPath;
    options.job.name = job_;
    options.timeout_ms = kWaitMs;
    options.threads = 1;
    options.agent.threads = 1;
    return options;
  }

  static std::unique_ptr<Engine> attach(const EngineOptions& options, os::FileSystem& files) {
    auto engine = attach_on(files, options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine ? std::move(*engine) : nullptr;
  }

  static SaveState saved(Engine& engine, std::uint64_t step, const State& state, bool persist = true) {
    const auto save = engine.save(step, state, persist);
    EXPECT_TRUE(save.has_value()) << save.error().message();
    if (!save) return {};
    const auto done = engine.wait(save->ticket, SaveStage::persisted, kWaitMs);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return done ? *done : SaveState{};
  }

  // Checks the store on this disk and returns its steps.
  static std::vector<std::uint64_t> sound_steps(os::FileSystem& files) {
    const auto store = store::open_store(files, kPath, {.access = StoreAccess::read});
    if (!store) return {};
    const auto report = (*store)->verify({});
    EXPECT_TRUE(report.has_value()) << report.error().message();
    EXPECT_TRUE(!report || report->damages.empty());
    return (*store)->steps().value();
  }

  os::FakeFileSystem disk_;
  const std::string job_ = unique_job();
};

// What a training with one fault saw.
struct Outcome {
  std::vector<SaveState> saves;
  std::uint64_t operations = 0;
};

TEST_F(EngineDiskTest, SavesSucceedAgainAfterAFaultAtAnyOperation) {
  const auto run = [&](std::uint64_t fault_at, const FaultyFileSystem::Fault& fault) {
    os::FakeFileSystem disk;
    static_cast<void>(disk.create_directory("/bitsnap-of-a-test"));
    FaultyFileSystem files(disk);
    files.fail_at(fault_at, fault);
    Outcome outcome;
    std::vector<SmallState> states;
    SmallState state;
    {
      const AgentThread agent(job_, files);
      EngineOptions wanted = options();
      wanted.retention.keep_last = 2;
      const auto engine = attach(wanted, disk);
      for (std::uint64_t step = 1; step <= 4; ++step) {
        if (step == 4) {
          outcome.operations = files.count();
          files.reset();  // ends the fault
        }
        state.step();
        states.push_back(state);
        outcome.saves.push_back(saved(*engine, step, state.state()));
        if (outcome.saves.back().has_reached_memory) {
          const auto restored = engine->restore(step);
          EXPECT_TRUE(restored.has_value() && state.is(*restored->snapshot)) << fault_at;
        }
      }
    }
    const std::vector<std::uint64_t> steps = sound_steps(disk);
    for (const SaveState& save : outcome.saves) {
      // Retention keeps the newest two of the checkpoints that were reported as persisted.
      const bool is_there = std::ranges::binary_search(steps, save.step);
      if (save.stage == SaveStage::persisted && save.step + 1 >= 4) {
        EXPECT_TRUE(is_there) << save.step;
      }
      if (!is_there) continue;
      const auto store = store::open_store(disk, kPath, {.access = StoreAccess::read});
      EXPECT_TRUE(states[save.step - 1].is(**(*store)->snapshot(save.step)));
    }
    return outcome;
  };
  const Outcome sound = run(UINT64_MAX, {});
  for (const SaveState& save : sound.saves) ASSERT_EQ(save.stage, SaveStage::persisted);
  ASSERT_GT(sound.operations, 30u);
  std::size_t failed = 0;
  for (std::uint64_t at = 0; at < sound.operations; at += 1) {
    for (const bool lasting : {false, true}) {
      if (lasting && at % 4 != 0) continue;
      const Outcome outcome = run(at, {.kind = ErrorKind::io, .lasting = lasting, .half_done = at % 2 == 1});
      for (const SaveState& save : outcome.saves) {
        EXPECT_TRUE(save.is_over());
        failed += save.stage == SaveStage::failed ? 1U : 0U;
      }
      EXPECT_EQ(outcome.saves.back().stage, SaveStage::persisted)
          << at << (lasting ? " lasting: " : ": ")
          << (outcome.saves.back().error ? outcome.saves.back().error->message() : "");
      if (::testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(failed, 20u);
}

TEST_F(EngineDiskTest, AFullDiskFailsSavesButNotTheTraining) {
  const AgentThread agent(job_, disk_);
  const auto engine = attach(options(), disk_);
  SmallState state;
  EXPECT_EQ(saved(*engine, 1, state.state()).stage, SaveStage::persisted);
  disk_.limit_space(1000);
  state.step();
  const SaveState full = saved(*engine, 2, state.state());
  EXPECT_EQ(full.stage, SaveStage::failed);
  EXPECT_TRUE(full.has_reached_memory);
  const auto restored = engine->restore(2);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_TRUE(restored->from_memory && state.is(*restored->snapshot));
  state.step();
  EXPECT_EQ(saved(*engine, 3, state.state(), false).stage, SaveStage::memory);
  disk_.limit_space(UINT64_MAX);
  state.step();
  EXPECT_EQ(saved(*engine, 4, state.state()).stage, SaveStage::persisted);
  EXPECT_EQ(sound_steps(disk_), (std::vector<std::uint64_t>{1, 4}));
}

TEST_F(EngineDiskTest, SavesForMemoryNeedNoDisk) {
  FaultyFileSystem files(disk_);
  files.fail_at(0, {.kind = ErrorKind::io, .lasting = true, .half_done = false});
  const AgentThread agent(job_, files);
  const auto engine = attach(options(), disk_);
  SmallState state;
  EXPECT_EQ(saved(*engine, 1, state.state()).stage, SaveStage::failed);
  const SaveState save = saved(*engine, 2, state.state(), false);
  EXPECT_EQ(save.stage, SaveStage::memory) << (save.error ? save.error->message() : "");
  const auto restored = engine->restore(2);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_TRUE(state.is(*restored->snapshot));
}

// A disk that blocks writes of snapshots while `is_held`.
class HeldDisk {
 public:
  explicit HeldDisk(os::FileSystem& inner) : files(inner) {
    files.watch([this](const FaultyFileSystem::Step& step) {
      if (step.operation != FileOperation::append || !step.path.ends_with(".bsnap")) return;
      ++waiting;
      while (is_held) ::usleep(1000);
    });
  }
  ~HeldDisk() { is_held = false; }

  FaultyFileSystem files;
  std::atomic<bool> is_held = true;
  std::atomic<int> waiting = 0;
};

TEST_F(EngineDiskTest, ASlowDiskDoesNotDelaySavesForMemory) {
  HeldDisk slow(disk_);
  const AgentThread agent(job_, slow.files);
  EngineOptions wanted = options();
  wanted.memory.snapshots = 8;
  const auto engine = attach(wanted, disk_);
  SmallState state;
  const auto first = engine->save(1, state.state());
  ASSERT_TRUE(first.has_value());
  for (std::uint64_t step = 2; step <= 6; ++step) {
    state.step();
    const SaveState save = saved(*engine, step, state.state(), false);
    EXPECT_EQ(save.stage, SaveStage::memory) << (save.error ? save.error->message() : "");
    EXPECT_EQ(save.base, step - 1);
  }
  EXPECT_EQ(engine->look(first->ticket)->stage, SaveStage::memory);
  EXPECT_TRUE(state.is(*engine->restore(6)->snapshot));
  while (slow.waiting.load() == 0) ::usleep(1000);  // a timeout of the test if the writer thread never writes
  slow.is_held = false;
  EXPECT_EQ(engine->wait(first->ticket, SaveStage::persisted, kWaitMs)->stage, SaveStage::persisted);
}

TEST_F(EngineDiskTest, ASaveSkipsOrWaitsWhileAllSlotsAreInUse) {
  HeldDisk slow(disk_);
  const AgentThread agent(job_, slow.files);
  for (const WhenBusy when_busy : {WhenBusy::skip, WhenBusy::wait}) {
    EngineOptions wanted = options();
    wanted.timeout_ms = when_busy == WhenBusy::skip ? kWaitMs : 2000;
    wanted.memory.when_busy = when_busy;
    const auto engine = attach(wanted, disk_);
    SmallState state;
    const std::uint64_t begin = when_busy == WhenBusy::skip ? 1 : 11;
    slow.is_held = true;
    for (std::uint64_t step = begin; step < begin + 2; ++step) {
      ASSERT_TRUE(engine->save(step, state.state()).has_value());
      state.step();
    }
    const os::Stopwatch stopwatch;
    const auto third = engine->save(begin + 2, state.state());
    if (when_busy == WhenBusy::skip) {
      ASSERT_TRUE(third.has_value()) << third.error().message();
      EXPECT_EQ(third->stage, SaveStage::skipped);
      EXPECT_TRUE(engine->look(third->ticket)->is_over());
      EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
    } else {
      ASSERT_FALSE(third.has_value());
      EXPECT_EQ(third.error().kind(), ErrorKind::busy);
      EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
    }
    slow.is_held = false;
    EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
    EXPECT_EQ(saved(*engine, begin + 3, state.state()).stage, SaveStage::persisted);
  }
}

TEST_F(EngineDiskTest, AStateAboveTheBudgetIsPersistedButNotKeptInMemory) {
  const AgentThread agent(job_, disk_);
  EngineOptions wanted = options();
  wanted.memory.slots = 1;  // the second slot would hold the state
  SmallState state;
  std::uint64_t arena = 0;
  {
    const auto engine = attach(wanted, disk_);
    ASSERT_TRUE(engine->reserve(state.state()).has_value());
    arena = engine->arena_bytes();
  }
  wanted.memory.budget_bytes = arena + 500;
  const auto engine = attach(wanted, disk_);
  const SaveState only_memory = saved(*engine, 1, state.state(), false);
  EXPECT_EQ(only_memory.stage, SaveStage::failed);
  ASSERT_TRUE(only_memory.error.has_value());
  EXPECT_EQ(only_memory.error->kind(), ErrorKind::resource_exhausted);
  EXPECT_NE(only_memory.error->message().find("budget"), std::string::npos);
  state.step();
  const SaveState persisted = saved(*engine, 2, state.state());
  EXPECT_EQ(persisted.stage, SaveStage::persisted);
  EXPECT_FALSE(persisted.has_reached_memory);
  EXPECT_EQ(sound_steps(disk_), std::vector<std::uint64_t>{2});
}

TEST_F(EngineDiskTest, ASlotHoldsAStateThatIsAboveTheBudget) {
  const AgentThread agent(job_, disk_);
  EngineOptions wanted = options();
  SmallState state;
  ASSERT_TRUE(attach(wanted, disk_)->reserve(state.state()).has_value());
  wanted.memory.budget_bytes = attach(wanted, disk_)->arena_bytes() + 500;
  const auto engine = attach(wanted, disk_);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    state.step();
    EXPECT_TRUE(saved(*engine, step, state.state()).has_reached_memory);
    const auto restored = engine->restore(step);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    EXPECT_TRUE(restored->from_memory);
    EXPECT_TRUE(state.is(*restored->snapshot));
  }
  EXPECT_EQ(sound_steps(disk_), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(EngineDiskTest, MemoryKeepsANewStateInPlaceOfABaseForWhichThereIsNoRoom) {
  const AgentThread agent(job_, disk_);
  EngineOptions wanted = options();
  SmallState state;
  std::uint64_t file_bytes = 0;
  {
    const auto engine = attach(wanted, disk_);
    file_bytes = saved(*engine, 1, state.state(), false).stored_bytes;
    wanted.memory.budget_bytes = engine->arena_bytes() + 2 * kTensorBytes + file_bytes + 300;
  }
  const auto engine = attach(wanted, disk_);
  for (std::uint64_t step = 2; step <= 4; ++step) {
    state.step();
    const SaveState save = saved(*engine, step, state.state(), false);
    ASSERT_EQ(save.stage, SaveStage::memory) << save.error->message();
    EXPECT_EQ(save.base, std::nullopt);
    EXPECT_TRUE(state.is(*engine->restore(step)->snapshot));
  }
}

TEST_F(EngineDiskTest, SavesSucceedWhenPruningFails) {
  FaultyFileSystem files(disk_);
  const AgentThread agent(job_, files);
  EngineOptions wanted = options();
  wanted.retention.keep_last = 1;
  wanted.settings.policy = Policy::raw;  // no checkpoint depends on a pruned one
  const auto engine = attach(wanted, disk_);
  SmallState state;
  EXPECT_EQ(saved(*engine, 1, state.state()).stage, SaveStage::persisted);
  files.reset();
  files.fail_at(FileOperation::remove, 0, {.kind = ErrorKind::io, .lasting = true, .half_done = false});
  for (std::uint64_t step = 2; step <= 4; ++step) {
    state.step();
    const SaveState save = saved(*engine, step, state.state());
    EXPECT_EQ(save.stage, SaveStage::persisted) << (save.error ? save.error->message() : "");
  }
  EXPECT_TRUE(engine->take_failures().empty());
  EXPECT_GT(files.failures(), 0u);
  files.reset();
  state.step();
  EXPECT_EQ(saved(*engine, 5, state.state()).stage, SaveStage::persisted);
  EXPECT_EQ(sound_steps(disk_).back(), 5u);
}

TEST_F(EngineDiskTest, PersistedStepsSurviveACrash) {
  const AgentThread agent(job_, disk_);
  EngineOptions wanted = options();
  wanted.retention.keep_last = 2;
  const auto engine = attach(wanted, disk_);
  SmallState state;
  for (std::uint64_t step = 1; step <= 6; ++step) {
    state.step();
    const auto save = engine->save(step, state.state());
    ASSERT_TRUE(save.has_value());
    ASSERT_EQ(engine->wait(save->ticket, SaveStage::persisted, kWaitMs)->stage, SaveStage::persisted);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const auto after = disk_.copy();
      if (seed == 0) {
        after->crash();
      } else {
        after->crash_at_random(seed);
      }
      const std::vector<std::uint64_t> steps = sound_steps(*after);
      ASSERT_FALSE(steps.empty());
      EXPECT_EQ(steps.back(), step);
      const auto store = store::open_store(*after, kPath, {.access = StoreAccess::read});
      EXPECT_TRUE(state.is(**(*store)->snapshot(step)));
    }
  }
}

}  // namespace
}  // namespace bitsnap::engine
