// Trainers and agents that run out of memory: what they give back, and what must stay.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "os/file_system_faulty.hpp"
#include "os/memory_limit.hpp"
#include "save/state_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

constexpr std::uint64_t kMegabyte = 1'000'000;

class EngineMemoryTest : public EngineFixture {
 protected:
  std::unique_ptr<Engine> attach_to(const std::string& job, std::uint32_t slots = 2) {
    EngineOptions wanted = options();
    wanted.memory.slots = slots;
    wanted.job.name = job;
    wanted.path = directory_.path() + "/" + job;
    auto engine = attach_within(
        [this]() -> Result<os::AvailableMemory> { return os::AvailableMemory{available_, 0, "a limit"}; }, wanted);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine ? std::move(*engine) : nullptr;
  }

  // The training's state and one more tensor, too large for the slots of the training's state.
  State grown() const {
    State state = trained_.state();
    state.tensors.push_back(save::source("more", DType::f32, {more_.size() / 4}, more_));
    return state;
  }

  // The least memory, in steps of a megabyte, with which the grown state can be saved. All refused saves change
  // nothing.
  std::uint64_t least_memory(Engine& engine, std::uint64_t step) {
    for (available_ = 0; available_ < 1000 * kMegabyte; available_ += kMegabyte) {
      const auto save = engine.save(step, grown(), false);
      if (save) return available_;
      EXPECT_EQ(save.error().kind(), ErrorKind::resource_exhausted) << save.error().message();
    }
    ADD_FAILURE() << "no memory is enough";
    return 0;
  }

  std::atomic<std::uint64_t> available_ = std::numeric_limits<std::uint64_t>::max();
  const save::Bytes more_ = save::random_bytes(8 * kMegabyte, 3);
};

// A trainer died while its agent still encoded its state. The next one needs a larger arena, for which there is memory
// only if the arena that holds this state goes first.
TEST_F(EngineMemoryTest, AnArenaGoesOnlyWhenItsStatesAreEncoded) {
  constexpr std::uint32_t kSlots = 1;
  std::uint64_t enough = 0;
  {
    const std::string twin = job_ + "-twin";
    const AgentThread agent(twin);
    const auto engine = attach_to(twin, kSlots);
    ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
    ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
    const std::uint64_t arena = engine->arena_bytes();
    enough = least_memory(*engine, 2) - arena / 2;
  }
  available_ = std::numeric_limits<std::uint64_t>::max();
  {
    const AgentThread agent(job_);
    const auto engine = attach_to(job_, kSlots);
    ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
    ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  }
  // The encoder of the next agent stops at the base of step 2.
  std::atomic<bool> is_held = true;
  os::FaultyFileSystem held(os::real_file_system());
  held.watch([&](const os::FaultyFileSystem::Step& step) {
    if (step.operation != os::FileOperation::open || !step.path.ends_with(".bsnap")) return;
    while (is_held) ::usleep(1000);
  });
  const AgentThread agent(job_, held);
  trained_.step();
  ASSERT_TRUE(attach_to(job_, kSlots)->save(2, trained_.state()).has_value());
  available_ = enough;
  const auto engine = attach_to(job_, kSlots);
  std::jthread release([&] {
    ::usleep(100'000);
    is_held = false;
  });
  const auto save = engine->save(3, grown());
  ASSERT_TRUE(save.has_value()) << save.error().message();
  const auto done = engine->wait(save->ticket, SaveStage::persisted, kWaitMs);
  EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
  expect_sound(engine->path(), {1, 2, 3});
  EXPECT_EQ(trained_.difference(**Store::open(engine->path()).value()->snapshot(2)), "");
}

TEST_F(EngineMemoryTest, TheNewestStateStaysWhileAnotherArenaIsSought) {
  const AgentThread agent(job_);
  const auto engine = attach_to(job_);
  ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
  trained_.step();
  ASSERT_TRUE(engine->save(2, trained_.state(), false).has_value());
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  // Step 2 is nowhere but in the agent's memory. First no save succeeds, then one that replaces the arena.
  available_ = 0;
  EXPECT_EQ(engine->save(3, grown(), false).error().kind(), ErrorKind::resource_exhausted);
  available_ = std::numeric_limits<std::uint64_t>::max();
  const auto kept = engine->restore(2, {}, {}, true);
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  EXPECT_TRUE(kept->from_memory);
  EXPECT_EQ(trained_.difference(*kept->snapshot), "");
  least_memory(*engine, 3);
  available_ = std::numeric_limits<std::uint64_t>::max();
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  const auto restored = engine->restore(2, {}, {}, true);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_TRUE(restored->from_memory);
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
}

TEST_F(EngineMemoryTest, PagesThatWereGivenBackAreAskedForAgain) {
  const AgentThread agent(job_);
  const auto engine = attach_to(job_);
  ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
  ASSERT_TRUE(engine->save(2, trained_.state()).has_value());
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  available_ = 1;
  const auto refused = engine->restore(1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind(), ErrorKind::resource_exhausted);
  const auto save = engine->save(3, trained_.state());
  ASSERT_FALSE(save.has_value());
  EXPECT_EQ(save.error().kind(), ErrorKind::resource_exhausted);
  available_ = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(engine->save(3, trained_.state()).has_value());
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  expect_sound(engine->path(), {1, 2, 3});
}

TEST_F(EngineMemoryTest, WithoutAnAgentTheStoreIsReadIfThereIsMemory) {
  std::unique_ptr<Engine> engine;
  {
    const AgentThread agent(job_);
    engine = attach_to(job_);
    ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
    ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  }
  for (const std::uint64_t available : {std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()}) {
    available_ = available;
    const auto restored = engine->restore(1, {}, 500);
    ASSERT_EQ(restored.has_value(), available > 1) << (restored ? "" : restored.error().message());
    if (restored) {
      EXPECT_EQ(trained_.difference(*restored->snapshot), "");
    } else {
      EXPECT_EQ(restored.error().kind(), ErrorKind::resource_exhausted) << restored.error().message();
    }
  }
}

}  // namespace
}  // namespace bitsnap::engine
