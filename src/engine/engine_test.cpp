// A trainer and its agent on two threads of one process: saving, restoring, and the arena.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/agent_thread_testing.hpp"
#include "os/forked_child_testing.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using store::Training;

class EngineTest : public ::testing::Test {
 protected:
  EngineOptions options() const {
    EngineOptions options;
    options.path = directory_.path() + "/run";
    options.job.name = job_;
    options.timeout_ms = kWaitMs;
    options.agent.threads = 2;
    return options;
  }

  std::unique_ptr<Engine> attach(const EngineOptions& options) {
    auto engine = Engine::attach(options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine ? std::move(*engine) : nullptr;
  }

  static SaveState saved(Engine& engine, std::uint64_t step, const State& state, bool persist = true) {
    auto save = engine.save(step, state, persist);
    EXPECT_TRUE(save.has_value()) << save.error().message();
    if (!save) return {};
    auto done = engine.wait(save->ticket, SaveStage::persisted, kWaitMs);
    EXPECT_TRUE(done.has_value()) << done.error().message();
    if (done && done->error) ADD_FAILURE() << done->error->message();
    return done ? *done : SaveState{};
  }

  os::TemporaryDirectory directory_;
  const std::string job_ = unique_job();
  Training trained_;
};

TEST_F(EngineTest, SavesToStoreAndMemoryBitForBit) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  ASSERT_NE(engine, nullptr);
  const SaveState save = saved(*engine, 10, trained_.state());
  EXPECT_EQ(save.stage, SaveStage::persisted);
  EXPECT_TRUE(save.has_reached_memory);
  EXPECT_GT(save.raw_bytes, 14 * Training::kElements);
  EXPECT_LT(save.stored_bytes, save.raw_bytes);

  const auto store = Store::open(engine->path());
  ASSERT_TRUE(store.has_value()) << store.error().message();
  const auto snapshot = (*store)->snapshot(10);
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(trained_.difference(**snapshot), "");

  const auto restored = engine->restore(10);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_TRUE(restored->from_memory);
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
}

TEST_F(EngineTest, SavesTheStateAtTheTimeOfTheCall) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  const Training expected = trained_;
  const auto save = engine->save(1, trained_.state());
  trained_.scribble();
  ASSERT_TRUE(save.has_value()) << save.error().message();
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  const auto store = Store::open(engine->path());
  EXPECT_EQ(expected.difference(**(*store)->snapshot(1)), "");
}

TEST_F(EngineTest, StepsForMemoryAreCodedAgainstTheStepBefore) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  wanted.memory.snapshots = 4;
  wanted.memory.budget_bytes = std::uint64_t{1} << 30;
  const auto engine = attach(wanted);
  saved(*engine, 0, trained_.state());
  std::vector<Training> states;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    trained_.step();
    states.push_back(trained_);
    const SaveState save = saved(*engine, step, trained_.state(), false);
    EXPECT_EQ(save.stage, SaveStage::memory);
    EXPECT_EQ(save.base, step - 1);
  }
  const auto steps = engine->steps();
  ASSERT_TRUE(steps.has_value());
  ASSERT_EQ(steps->size(), 4u);
  EXPECT_EQ((*steps)[0], (RestorableStep{0, true, true, true}));
  EXPECT_EQ((*steps)[3], (RestorableStep{3, true, true, false}));
  EXPECT_EQ(engine->latest().value(), 3u);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    const auto restored = engine->restore(step);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    EXPECT_EQ(states[step - 1].difference(*restored->snapshot), "");
  }
  // A save to the store is coded against the newest save in the store, not against memory.
  trained_.step();
  EXPECT_EQ(saved(*engine, 4, trained_.state()).base, 0u);
}

TEST_F(EngineTest, AJournalOfManyStepsHasOneKeyframe) {
  for (const std::uint32_t wanted_steps : {2U, 20U}) {
    EngineOptions wanted = options();
    wanted.path += std::to_string(wanted_steps);
    wanted.job.name += std::to_string(wanted_steps);
    wanted.memory.snapshots = wanted_steps;
    wanted.memory.budget_bytes = std::uint64_t{1} << 30;
    const AgentThread agent(wanted.job.name);
    const auto engine = attach(wanted);
    std::vector<std::uint64_t> keyframes;
    std::vector<Training> states;
    for (std::uint64_t step = 0; step < 20; ++step) {
      trained_.step();
      states.push_back(trained_);
      if (!saved(*engine, step, trained_.state(), false).base) keyframes.push_back(step);
    }
    if (wanted_steps == 2) {
      EXPECT_THAT(keyframes, testing::ElementsAre(0, 9, 18));
      continue;
    }
    EXPECT_THAT(keyframes, testing::ElementsAre(0));
    for (const std::uint64_t step : {1U, 10U, 18U}) {
      const auto restored = engine->restore(step);
      ASSERT_TRUE(restored.has_value()) << restored.error().message();
      EXPECT_TRUE(restored->from_memory);
      EXPECT_EQ(states[step].difference(*restored->snapshot), "");
    }
  }
}

TEST_F(EngineTest, StepsForMemoryAreCodedWithTheSettingsThatTheStoreRemembers) {
  std::array<std::uint64_t, 2> stored{};
  for (const bool is_fast : {false, true}) {
    EngineOptions wanted = options();
    wanted.path += is_fast ? "-fast" : "-slow";
    wanted.job.name += is_fast ? "f" : "s";
    const CodingSettings remembered{.store_speed = is_fast ? 1'000'000'000'000 : 1'000'000};
    ASSERT_TRUE(Store::open(wanted.path, {.access = StoreAccess::write, .settings = remembered}));
    const AgentThread agent(wanted.job.name);
    const auto engine = attach(wanted);
    const auto save = engine->save(1, trained_.state(), false);
    ASSERT_TRUE(save.has_value()) << save.error().message();
    stored[is_fast ? 1 : 0] = engine->wait(save->ticket, SaveStage::memory, kWaitMs)->stored_bytes;
  }
  EXPECT_LT(stored[0], stored[1]) << "for a slow store, bytes count";
}

TEST_F(EngineTest, ARestartedTrainerReusesStateAndArena) {
  const AgentThread agent(job_);
  {
    const auto engine = attach(options());
    saved(*engine, 5, trained_.state());
  }
  const auto engine = attach(options());
  EXPECT_GT(engine->arena_bytes(), 0u);
  const auto step = engine->latest();
  ASSERT_TRUE(step.has_value()) << step.error().message();
  ASSERT_EQ(*step, 5u);
  const auto restored = engine->restore(5);
  ASSERT_TRUE(restored.has_value());
  EXPECT_TRUE(restored->from_memory);
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
  // A restored state stays readable when its slot is used again.
  const Training before = trained_;
  for (std::uint64_t next = 6; next < 9; ++next) {
    trained_.step();
    EXPECT_EQ(saved(*engine, next, trained_.state()).base, next - 1);
  }
  EXPECT_EQ(before.difference(*restored->snapshot), "");
}

TEST_F(EngineTest, TheNewestStepIsInMemoryWithItsWholeChain) {
  const AgentThread agent(job_);
  {
    EngineOptions wanted = options();
    wanted.memory.snapshots = 1;
    const auto engine = attach(wanted);
    for (std::uint64_t step = 1; step <= 8; ++step) {
      trained_.step();
      // The default budget has room for one raw state, but the chain is larger.
      EXPECT_TRUE(saved(*engine, step, trained_.state()).has_reached_memory) << step;
      EXPECT_EQ(engine->restore(step)->from_memory, true) << step;
    }
  }
  const auto engine = attach(options());
  EXPECT_TRUE(engine->steps()->back().everywhere);
  const auto restored = engine->restore(8);
  EXPECT_TRUE(restored->from_memory);
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
}

TEST_F(EngineTest, RefusesASecondTrainerOfARank) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  const auto second = Engine::attach(options());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().kind(), ErrorKind::busy);
  EngineOptions other = options();
  other.path = directory_.path() + "/other";
  const auto third = Engine::attach(other);
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().kind(), ErrorKind::invalid_argument);
}

TEST_F(EngineTest, ACheckpointIsCommittedOnlyIfAllRanksSavedIt) {
  const AgentThread agent(job_);
  std::vector<std::unique_ptr<Engine>> engines;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EngineOptions wanted = options();
    wanted.job.rank = rank;
    wanted.job.world_size = 3;
    engines.push_back(attach(wanted));
  }
  std::vector<SaveState> saves;
  for (std::uint32_t rank = 0; rank < 2; ++rank) saves.push_back(*engines[rank]->save(7, trained_.state()));
  ASSERT_TRUE(engines[0]->wait(saves[0].ticket, SaveStage::memory, kWaitMs).has_value());
  EXPECT_EQ(engines[0]->wait(saves[0].ticket, SaveStage::persisted, 300).error().kind(), ErrorKind::busy);
  EXPECT_TRUE((*Store::open(engines[0]->path()))->steps()->empty());
  EXPECT_FALSE(engines[0]->latest()->has_value());
  saves.push_back(*engines[2]->save(7, trained_.state()));
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const auto done = engines[rank]->wait(saves[rank].ticket, SaveStage::persisted, kWaitMs);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
  }
  EXPECT_EQ((*Store::open(engines[0]->path()))->checkpoint(7)->shards, 3u);
  EXPECT_EQ(engines[1]->latest()->value(), 7u);
}

TEST_F(EngineTest, RefusesABudgetThatIsTooSmallBeforeAllocating) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  wanted.memory.budget_bytes = 14 * Training::kElements;
  const auto engine = attach(wanted);
  const auto save = engine->save(1, trained_.state());
  ASSERT_FALSE(save.has_value());
  EXPECT_EQ(save.error().kind(), ErrorKind::resource_exhausted);
  EXPECT_NE(save.error().message().find("budget"), std::string::npos);
  EXPECT_EQ(engine->arena_bytes(), 0u);
}

TEST_F(EngineTest, TakesOneSlotIfTheBudgetHasNoRoomForTwo) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  std::uint64_t arena = 0;
  {
    const auto engine = attach(wanted);
    ASSERT_TRUE(engine->reserve(trained_.state()).has_value());
    EXPECT_EQ(engine->memory_note(), "");
    arena = engine->arena_bytes();
  }
  wanted.memory.budget_bytes = arena - 1;
  const auto engine = attach(wanted);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    trained_.step();
    EXPECT_EQ(saved(*engine, step, trained_.state()).stage, SaveStage::persisted);
  }
  EXPECT_LT(engine->arena_bytes(), arena / 2 + 4096);
  EXPECT_TRUE(engine->memory_note().starts_with("the arena has 1 slot: a state of ")) << engine->memory_note();
  EXPECT_NE(engine->memory_note().find("but the budget is"), std::string::npos);
  EXPECT_EQ(trained_.difference(*engine->restore(3)->snapshot), "");
}

TEST_F(EngineTest, WorksWithOneSlot) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  wanted.memory.slots = 1;
  const auto engine = attach(wanted);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    trained_.step();
    saved(*engine, step, trained_.state());
  }
  EXPECT_EQ(trained_.difference(*engine->restore(3)->snapshot), "");
}

TEST_F(EngineTest, ReportsAFailedSaveAndSavesTheNext) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  saved(*engine, 5, trained_.state());
  const auto save = engine->save(5, trained_.state());
  ASSERT_TRUE(save.has_value());
  const auto done = engine->wait(save->ticket, SaveStage::persisted, kWaitMs);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->stage, SaveStage::failed);
  EXPECT_EQ(engine->take_failures().size(), 1u);
  EXPECT_TRUE(engine->take_failures().empty());
  trained_.step();
  EXPECT_EQ(saved(*engine, 6, trained_.state()).stage, SaveStage::persisted);
}

TEST_F(EngineTest, GrowsTheArenaWithTheState) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  saved(*engine, 1, trained_.state());
  const std::vector<std::byte> more(std::size_t{20} << 20, std::byte{7});
  State larger = trained_.state();
  larger.tensors.push_back(TensorSource::of("more", DType::u8, {more.size()}, more).value());
  const std::uint64_t before = engine->arena_bytes();
  EXPECT_EQ(saved(*engine, 2, larger).stage, SaveStage::persisted);
  EXPECT_GT(engine->arena_bytes(), before);
  const auto restored = engine->restore(2);
  std::vector<std::byte> read(more.size());
  ASSERT_TRUE(restored->snapshot->read_bytes(*restored->snapshot->find("more"), 0, read).has_value());
  EXPECT_EQ(read, more);
}

TEST_F(EngineTest, ForksAndClosesWhileItTakesThePagesOfTheOtherSlot) {
  const AgentThread agent(job_);
  auto engine = attach(options());
  const std::vector<std::byte> large(std::size_t{64} << 20, std::byte{7});
  State state;
  state.tensors.push_back(TensorSource::of("w", DType::u8, {large.size()}, large).value());
  ASSERT_TRUE(engine->save(1, state, false).has_value());
  EXPECT_EQ(os::returned_by_child([&] {
              ::alarm(20);
              const bool is_refused = !engine->save(2, state) && !engine->reserve(state);
              engine.reset();
              return is_refused ? 0 : 1;
            }),
            0);
  engine.reset();
  // The next trainer gets the arena as it is, and takes what is missing.
  engine = attach(options());
  ASSERT_GT(engine->arena_bytes(), 2 * large.size());
  for (std::uint64_t step = 2; step <= 4; ++step) {
    const auto save = engine->save(step, state, false);
    ASSERT_TRUE(save.has_value()) << save.error().message();
    if (step == 2) {
      EXPECT_TRUE(engine->reserve(state).has_value());
    }
  }
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
  EXPECT_TRUE(engine->take_failures().empty());
  std::vector<std::byte> read(large.size());
  const auto restored = engine->restore(4);
  ASSERT_TRUE(restored->snapshot->read_bytes(*restored->snapshot->find("w"), 0, read).has_value());
  EXPECT_EQ(read, large);
}

TEST_F(EngineTest, AnAgentWithoutTrainersEnds) {
  AgentThread agent(job_);
  {
    EngineOptions wanted = options();
    wanted.agent.linger_ms = 50;
    const auto engine = attach(wanted);
    saved(*engine, 1, trained_.state());
  }
  agent.join();
  EXPECT_TRUE(agent.has_ended());
  EXPECT_EQ(agent_status(job_, 1000).error().kind(), ErrorKind::not_found);
}

TEST_F(EngineTest, AnAgentReportsItsStatusAndStops) {
  AgentThread agent(job_);
  const auto engine = attach(options());
  saved(*engine, 1, trained_.state());
  const auto report = agent_status(job_, kWaitMs);
  ASSERT_TRUE(report.has_value()) << report.error().message();
  const auto json = nlohmann::json::parse(*report);
  EXPECT_EQ(json["ranks"][0]["memory_steps"], nlohmann::json::array({1}));
  EXPECT_EQ(json["ranks"][0]["persisted"], 1);
}

}  // namespace
}  // namespace bitsnap::engine
