// Restarts of a job with another world size: what memory has becomes a checkpoint when the new trainers ask for it.
#include <bitsnap/engine.hpp>
#include <bitsnap/quantization.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/agent_process_testing.hpp"
#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "os/file_system_faulty.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using store::Training;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Engines = std::vector<std::unique_ptr<Engine>>;

class EngineElasticTest : public EngineFixture {
 protected:
  Engines attach_all(std::uint32_t world_size, std::uint32_t slots = 2, std::uint32_t absent = 0) {
    Engines engines;
    for (std::uint32_t rank = 0; rank + absent < world_size; ++rank) {
      EngineOptions wanted = options(program_);
      wanted.job.rank = rank;
      wanted.job.world_size = world_size;
      wanted.memory.slots = slots;
      wanted.settings = settings_;
      wanted.job.session = session_;
      wanted.agent.linger_ms = kWaitMs;  // no slow machine ends the agent between two jobs
      engines.push_back(attach(wanted));
    }
    return engines;
  }

  void save_all(const Engines& engines, std::uint64_t step, bool persist = false) {
    std::vector<std::uint64_t> tickets;
    for (const auto& engine : engines) tickets.push_back(engine->save(step, trained_.state(), persist)->ticket);
    const SaveStage wanted = persist ? SaveStage::persisted : SaveStage::memory;
    for (std::size_t rank = 0; rank < engines.size(); ++rank) {
      EXPECT_EQ(engines[rank]->wait(tickets[rank], wanted, kWaitMs)->stage, wanted);
    }
  }

  CodingSettings settings_;
  std::string session_;
  std::string program_;  // of the agent, unless a thread is one

  static RestorableStep newest(const Engine& engine) { return engine.steps()->back(); }

  void expect_stored(std::uint64_t step, std::uint32_t shards) {
    const auto store = Store::open(directory_.path() + "/run", {.access = StoreAccess::read});
    ASSERT_TRUE(store.has_value());
    ASSERT_EQ((*store)->checkpoint(step)->shards, shards);
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      EXPECT_EQ(trained_.difference(**(*store)->snapshot(step, shard)), "");
    }
  }
};

TEST_F(EngineElasticTest, AnotherWorldSizeStoresTheNewestStepOfMemory) {
  // With two slots, the newest state is coded against the one before; with one, it has no slot any more.
  for (const std::uint32_t slots : {2U, 1U}) {
    const AgentThread agent(job_);
    const std::uint64_t first = 10 * (3 - slots);
    {
      const Engines before = attach_all(4, slots);
      save_all(before, first, true);
      for (const std::uint64_t more : {1U, 2U}) {
        trained_.step();
        save_all(before, first + more);
      }
    }
    {
      const Engines after = attach_all(2, slots);
      const RestorableStep kept = newest(*after[0]);
      EXPECT_EQ(kept.step, first + 2);
      EXPECT_EQ(kept.earlier_ranks, 4U);
      EXPECT_THAT(kept.held_ranks, ElementsAre(0, 1, 2, 3));
      EXPECT_FALSE(kept.in_memory || kept.in_store);
      EXPECT_EQ(after[0]->persist_earlier(first + 3, kept.attempt).error().kind(), ErrorKind::not_found);
      // Both ask, at the same time.
      std::thread other([&] { static_cast<void>(after[1]->persist_earlier(kept.step, kept.attempt)); });
      const auto stored = after[0]->persist_earlier(kept.step, kept.attempt);
      other.join();
      EXPECT_TRUE(stored.has_value() || stored.error().kind() == ErrorKind::not_found) << stored.error().message();
      expect_stored(kept.step, 4);
      EXPECT_TRUE(newest(*after[0]).in_store);
      trained_.step();
      save_all(after, first + 3, true);  // the memory of the earlier job is gone, and its locks
    }
    const auto store = Store::open(directory_.path() + "/run");
    ASSERT_TRUE(store.has_value());
    EXPECT_TRUE((*store)->verify({})->damages.empty());
    EXPECT_EQ((*store)->steps()->size(), (3 - slots) * 3U);
    trained_.step();
  }
}

TEST_F(EngineElasticTest, OneRankAndManyReadEachOthersMemory) {
  const AgentThread agent(job_);
  std::uint64_t step = 0;
  for (const std::uint32_t world_size : {1U, 3U, 1U}) {
    const Engines engines = attach_all(world_size);
    if (step != 0) {
      const RestorableStep kept = newest(*engines[0]);
      ASSERT_EQ(kept.step, step);
      const auto stored = engines[0]->persist_earlier(step, kept.attempt);
      ASSERT_TRUE(stored.has_value()) << stored.error().message();
      expect_stored(step, world_size == 3 ? 1 : 3);
    }
    trained_.step();
    save_all(engines, ++step);
  }
}

TEST_F(EngineElasticTest, TrainersStoreAStepOfTheirOwnMemory) {
  const AgentThread agent(job_);
  const Engines engines = attach_all(3);
  save_all(engines, 1, true);
  for (const std::uint64_t step : {2U, 3U}) {
    trained_.step();
    save_all(engines, step);
  }
  const Training saved = trained_;
  const std::string attempt = newest(*engines[0]).attempt;
  EXPECT_EQ(engines[0]->persist_earlier(4, attempt).error().kind(), ErrorKind::not_found);
  std::vector<std::thread> others;
  for (const std::size_t rank : {1U, 2U}) {
    others.emplace_back([&, rank] { EXPECT_TRUE(engines[rank]->persist_earlier(3, attempt).has_value()); });
  }
  const auto stored = engines[0]->persist_earlier(3, attempt);
  for (std::thread& other : others) other.join();
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  expect_stored(3, 3);
  EXPECT_TRUE(newest(*engines[2]).in_store && newest(*engines[2]).everywhere);
  // The trainers go on, and no save is taken for the one that no trainer made.
  trained_.step();
  save_all(engines, 4, true);
  expect_stored(4, 3);
  EXPECT_EQ(engines[1]->restore(3)->from_memory, true);
  EXPECT_EQ(saved.difference(*engines[1]->restore(3)->snapshot), "");
}

TEST_F(EngineElasticTest, ARoundedStateIsStoredAsMemoryHasIt) {
  const AgentThread agent(job_);
  settings_.loss = std::vector<LossRule>{*parse_loss_rule("exp_avg_sq=mantissa_bits:3")};
  for (const std::uint32_t world_size : {2U, 1U}) {
    Engines engines = attach_all(2);
    const std::uint64_t first = 10 * (3 - world_size);
    save_all(engines, first);
    trained_.step();
    save_all(engines, first + 1);
    const std::string attempt = newest(*engines[0]).attempt;
    const SnapshotId id = engines[1]->restore(first + 1)->snapshot->id();
    EXPECT_EQ(trained_.difference(*engines[1]->restore(first + 1)->snapshot), "other bytes in exp_avg_sq.w");
    if (world_size == 1) {
      engines.clear();
      engines = attach_all(1);
    }
    const auto stored = engines[0]->persist_earlier(first + 1, attempt);
    ASSERT_TRUE(stored.has_value()) << stored.error().message();
    const auto store = Store::open(directory_.path() + "/run", {.access = StoreAccess::read});
    ASSERT_TRUE(store.has_value());
    EXPECT_EQ((*store)->snapshot(first + 1, 1).value()->id(), id);
  }
}

TEST_F(EngineElasticTest, MemoryStaysUntilTheNewJobSaves) {
  const AgentThread agent(job_);
  save_all(attach_all(3), 1);
  {
    const Engines other = attach_all(2);  // ends without a save
    EXPECT_THAT(*agent_status(job_, kWaitMs), HasSubstr(R"("earlier":{"world_size":3,)"));
    const auto refused = other[0]->restore(1);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message(), HasSubstr("persist_earlier() stores"));
  }
  EXPECT_EQ(newest(*attach_all(1)[0]).earlier_ranks, 3U);
  {
    const Engines again = attach_all(3);
    EXPECT_TRUE(again[2]->restore(1)->from_memory);
  }
  save_all(attach_all(2), 0);
  EXPECT_THAT(*agent_status(job_, kWaitMs), HasSubstr(R"("earlier":null)"));
  const Engines last = attach_all(2);
  EXPECT_EQ(newest(*last[0]).step, 1U);
  EXPECT_THAT(newest(*last[0]).held_ranks, ElementsAre());
  EXPECT_EQ(last[0]->persist_earlier(1, "").error().kind(), ErrorKind::not_found);
}

TEST_F(EngineElasticTest, AnIncompleteStepIsNoCheckpoint) {
  const AgentThread agent(job_);
  save_all(attach_all(3, 2, 1), 1);
  const Engines after = attach_all(2);
  const RestorableStep kept = newest(*after[0]);
  EXPECT_THAT(kept.held_ranks, ElementsAre(0, 1));
  EXPECT_TRUE(after[0]->persist_earlier(1, kept.attempt).has_value());
  EXPECT_EQ(after[0]->latest()->has_value(), false);
}

TEST_F(EngineElasticTest, AFullDiskLosesNothing) {
  os::FaultyFileSystem full(os::real_file_system());
  const AgentThread agent(job_, full);
  save_all(attach_all(2), 1);
  const Engines after = attach_all(1);
  const RestorableStep kept = newest(*after[0]);
  full.reset();
  full.fail_at(os::FileOperation::append, 0, {.lasting = true, .code = ErrorCode::no_space});
  const auto stored = after[0]->persist_earlier(1, kept.attempt);
  ASSERT_FALSE(stored.has_value());
  EXPECT_THAT(stored.error().message(), HasSubstr("storing step 1 of rank"));
  EXPECT_EQ(stored.error().code(), ErrorCode::no_space);
  full.reset();
  const auto again = after[0]->persist_earlier(1, kept.attempt);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  expect_stored(1, 2);
}

TEST_F(EngineElasticTest, AStepThatWasStoredIsNotTakenForALaterSaveOfIt) {
  program_ = agent_program_in(directory_.path());
  save_all(attach_all(2), 5);
  const Engines after = attach_all(1);
  ASSERT_TRUE(after[0]->persist_earlier(5, newest(*after[0]).attempt).has_value());
  expect_stored(5, 2);
  const Training stored = trained_;
  // The training goes back to step 3. It saves another state of step 5, later two of step 6; the agents that have the
  // second ones die before they save them.
  trained_.step();
  save_all(after, 4);
  for (const std::uint64_t step : {5U, 6U}) {
    std::uint64_t ticket = 0;
    {
      const StoppedAgent stopped(after[0]->agent_process());
      ticket = after[0]->save(step, trained_.state())->ticket;
      kill_agent(*after[0]);
    }
    const auto ended = after[0]->wait(ticket, SaveStage::persisted, kWaitMs);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->stage, SaveStage::failed) << step;
    trained_.step();
    if (step == 5) save_all(after, 6, true);
  }
  trained_ = stored;
  expect_stored(5, 2);
}

TEST_F(EngineElasticTest, AShardWaitsForASlowOneOfAnotherRank) {
  os::FaultyFileSystem slow(os::real_file_system());
  std::string last;  // one rank encodes at a time
  slow.watch([&](const os::FaultyFileSystem::Step& step) {
    if (step.operation != os::FileOperation::append || !step.path.ends_with(".bsnap")) return;
    if (std::exchange(last, step.path) != step.path) ::usleep(1'100'000);
  });
  const AgentThread agent(job_, slow);
  session_ = "first";
  save_all(attach_all(4), 1);
  session_ = "second";
  static_cast<void>(attach_all(4));  // restarts, and leaves
  const Engines after = attach_all(1);
  const auto stored = after[0]->persist_earlier(1, newest(*after[0]).attempt);
  ASSERT_TRUE(stored.has_value()) << stored.error().message();
  expect_stored(1, 4);
}

TEST_F(EngineElasticTest, AStoppedAgentFinishesWhatItStores) {
  os::FaultyFileSystem slow(os::real_file_system());
  slow.watch([](const os::FaultyFileSystem::Step& step) {
    if (step.operation == os::FileOperation::append && step.path.ends_with(".bsnap")) ::usleep(20'000);
  });
  AgentThread agent(job_, slow);
  save_all(attach_all(2), 1);
  {
    const Engines after = attach_all(1);
    const RestorableStep kept = newest(*after[0]);
    EXPECT_EQ(after[0]->persist_earlier(1, kept.attempt, 1).error().kind(), ErrorKind::busy);
  }
  // A third world size waits until the step is stored.
  EXPECT_TRUE(newest(*attach_all(3)[0]).in_store);
  static_cast<void>(stop_agent(job_, false, 100));  // the process of this agent does not end
  agent.join();
  expect_stored(1, 2);
}

}  // namespace
}  // namespace bitsnap::engine
