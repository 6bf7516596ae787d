// Ranks of one job that do not save the same steps: what not all of them saved is skipped, and nothing fails.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/agent_process_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "os/file_system_faulty.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::engine {
namespace {

class EngineRanksTest : public EngineFixture {
 protected:
  using Engines = std::array<std::unique_ptr<Engine>, 2>;

  EngineOptions rank_options(std::uint32_t rank) const {
    EngineOptions wanted = options();
    wanted.job.rank = rank;
    wanted.job.world_size = 2;
    wanted.agent.threads = 1;
    return wanted;
  }

  Engines both(WhenBusy when_busy = WhenBusy::wait, std::uint32_t slots = 2) const {
    Engines engines;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      EngineOptions wanted = rank_options(rank);
      wanted.memory.when_busy = when_busy;
      wanted.memory.slots = slots;
      engines[rank] = attach(wanted);
    }
    return engines;
  }

  SaveState save(Engine& engine, std::uint64_t step) {
    const auto state = engine.save(step, trained_.state());
    EXPECT_TRUE(state.has_value()) << state.error().message();
    return state.value_or(SaveState());
  }

  // Waits for all saves of the ranks, of which none may have failed.
  static void expect_no_failure(const Engines& engines) {
    for (const auto& engine : engines) {
      if (engine == nullptr) continue;
      const auto waited = engine->wait_all(kWaitMs);
      EXPECT_TRUE(waited.has_value()) << waited.error().message();
      for (const SaveState& failed : engine->take_failures()) ADD_FAILURE() << failed.error->message();
    }
  }

  // Raw bytes of the states of this rank that the agent has encoded, whose slots are free.
  std::uint64_t encoded_bytes(std::uint32_t rank) const {
    return nlohmann::json::parse(agent_status(job_, kWaitMs).value())["ranks"][rank]["raw_bytes"];
  }

  static SaveStage stage(const Engine& engine, const SaveState& save) { return engine.look(save.ticket)->stage; }
};

TEST_F(EngineRanksTest, EqualStatesOfAllRanksAreOneFileOfTheStore) {
  // The rank that writes does it slowly, so that the others are ready to write before it has finished.
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(50'000);
  });
  const AgentThread agent(job_, slow);
  const Engines engines = both();
  // The saves do not wait for each other, so that checkpoints are committed between those of the ranks.
  for (std::uint64_t step = 1; step <= 6; ++step) {
    for (const auto& engine : engines) save(*engine, step);
    trained_.step();
  }
  expect_no_failure(engines);
  for (std::uint64_t step = 1; step <= 6; ++step) {
    const auto record = store::read_commit_record(os::real_file_system(), store::RunLayout(engines[0]->path()), step);
    ASSERT_TRUE(record.has_value()) << record.error().message();
    EXPECT_NE(record->shards[0].is_link, record->shards[1].is_link) << step;
    EXPECT_LT((*Store::open(engines[0]->path()))->checkpoint(step)->stored_bytes, 2 * record->shards[0].bytes);
  }
}

TEST_F(EngineRanksTest, ABusyRankSkipsForAll) {
  std::vector<std::uint64_t> stored;
  for (const std::uint32_t first : {0U, 1U}) {
    // What rank 1 writes waits, so its only slot stays in use.
    std::atomic<bool> is_held = true;
    os::FaultyFileSystem slow(os::real_file_system());
    slow.watch([&](const os::FaultyFileSystem::Step& step) {
      const bool is_its =
          step.operation == os::FileOperation::append && step.path.find("shard-00001") != std::string::npos;
      while (is_held && is_its) ::usleep(1000);
    });
    const AgentThread agent(job_, slow);
    const Engines engines = both(WhenBusy::skip, 1);
    // Ranks with equal states would wait for the file that rank 1 writes.
    const auto save = [&](std::uint32_t rank, std::uint64_t step) {
      State state = trained_.state();
      state.metadata.emplace_back("rank", std::to_string(rank));
      const auto saved = engines[rank]->save(step, state);
      EXPECT_TRUE(saved.has_value()) << saved.error().message();
      return saved.value_or(SaveState());
    };
    const std::uint64_t begin = 10 * first;
    const std::array order = {first, 1 - first};
    for (std::uint64_t step = begin + 1; step <= begin + 2; ++step) {
      std::array<SaveState, 2> saves;
      for (const std::uint32_t rank : order) saves[rank] = save(rank, step);
      for (const std::uint32_t rank : order) {
        EXPECT_EQ(saves[rank].stage, SaveStage::staged) << "rank " << rank << ", step " << step;
        // Rank 1 encodes its second state only when the first one is written.
        if (rank == 1 && step == begin + 2) continue;
        while (encoded_bytes(rank) < (step - begin) * saves[rank].raw_bytes) ::usleep(1000);
      }
      trained_.step();
    }
    for (const std::uint32_t rank : order) {
      EXPECT_EQ(save(rank, begin + 3).stage, SaveStage::skipped) << "rank " << rank;
    }
    is_held = false;
    expect_no_failure(engines);
    for (const std::uint32_t rank : order) {
      EXPECT_EQ(save(rank, begin + 4).stage, SaveStage::staged) << "rank " << rank;
    }
    expect_no_failure(engines);
    for (const std::uint64_t step : {begin + 1, begin + 2, begin + 4}) stored.push_back(step);
    expect_sound(stored);
  }
}

TEST_F(EngineRanksTest, AStepThatOneRankDoesNotSaveIsSkipped) {
  const AgentThread agent(job_);
  const Engines engines = both();
  for (const auto& engine : engines) save(*engine, 1);
  expect_no_failure(engines);
  std::vector<std::uint64_t> stored{1};
  for (const bool is_behind : {false, true}) {
    const std::uint64_t step = stored.back() + 2;
    trained_.step();
    // Rank 1 goes on to the next step before rank 0 saves this one, or after it.
    if (is_behind) save(*engines[1], step + 1);
    const SaveState alone = save(*engines[0], step);
    EXPECT_EQ(alone.stage, SaveStage::staged);
    trained_.step();
    if (!is_behind) save(*engines[1], step + 1);
    const SaveState together = save(*engines[0], step + 1);
    expect_no_failure(engines);
    EXPECT_EQ(stage(*engines[0], alone), SaveStage::skipped);
    EXPECT_FALSE(engines[0]->look(alone.ticket)->error.has_value());
    EXPECT_TRUE(engines[0]->look(alone.ticket)->has_reached_memory);
    EXPECT_EQ(stage(*engines[0], together), SaveStage::persisted);
    stored.push_back(step + 1);
    expect_sound(stored);
  }
  const auto report = nlohmann::json::parse(agent_status(job_, kWaitMs).value());
  EXPECT_EQ(report["ranks"][0]["skipped"], 2);
  EXPECT_EQ(report["ranks"][0]["failed"], 0);
  EXPECT_EQ(report["ranks"][0]["uncommitted"], 0);
}

TEST_F(EngineRanksTest, TheLastStepIsSkippedOnceTheOtherRankHasLeft) {
  const AgentThread agent(job_);
  Engines engines = both();
  for (const auto& engine : engines) save(*engine, 1);
  const SaveState alone = save(*engines[0], 2);
  EXPECT_TRUE(engines[1]->wait_all(kWaitMs).has_value());
  engines[1].reset();
  expect_no_failure(engines);
  EXPECT_EQ(stage(*engines[0], alone), SaveStage::skipped);
  expect_sound({1});
}

TEST_F(EngineRanksTest, AStepThatARankOnAnotherMachineDoesNotSaveIsSkipped) {
  // Two agents, as on two machines.
  Engines engines;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EngineOptions wanted = rank_options(rank);
    wanted.job.name = unique_job();
    wanted.job.session = "s";
    wanted.agent.command = agent_program_in(directory_.path());
    engines[rank] = attach(wanted);
  }
  std::vector<std::uint64_t> stored;
  for (const std::uint32_t first : {0U, 1U}) {
    const std::uint64_t step = 1 + 10 * first;
    const SaveState alone = save(*engines[0], step);
    for (const std::uint32_t rank : {first, 1 - first}) save(*engines[rank], step + 1);
    expect_no_failure(engines);
    EXPECT_EQ(stage(*engines[0], alone), SaveStage::skipped);
    stored.push_back(step + 1);
    expect_sound(stored);
  }
}

TEST_F(EngineRanksTest, AStoppedAgentDelaysADecisionOnce) {
  EngineOptions wanted = rank_options(0);
  wanted.agent.command = agent_program_in(directory_.path());
  wanted.memory.when_busy = WhenBusy::skip;
  wanted.timeout_ms = 300;
  auto engine = Engine::attach(wanted);
  for (int tries = 0; !engine && tries < 100; ++tries) engine = Engine::attach(wanted);  // on a slow machine
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  while (!(*engine)->reserve(trained_.state())) ::usleep(1000);
  const StoppedAgent stopped((*engine)->agent_process());
  std::vector<SaveStage> stages;
  for (std::uint64_t step = 1; step <= 3; ++step) stages.push_back(save(**engine, step).stage);
  EXPECT_EQ(stages, (std::vector{SaveStage::staged, SaveStage::staged, SaveStage::skipped}));
}

}  // namespace
}  // namespace bitsnap::engine
