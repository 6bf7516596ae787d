// Checkpoints that the trainer's caller removes itself: Engine::rotate().
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include "engine/engine_fixture_testing.hpp"

namespace bitsnap::engine {
namespace {

using Steps = std::vector<std::uint64_t>;

class EngineRotationTest : public EngineFixture {
 protected:
  [[nodiscard]] Checkpoint info(std::uint64_t step) const {
    const auto store = Store::open(options().path);
    EXPECT_TRUE(store.has_value()) << store.error().message();
    return store ? (*store)->checkpoint(step).value_or(Checkpoint()) : Checkpoint();
  }

  [[nodiscard]] Steps stored() const {
    const auto store = Store::open(options().path);
    return store ? (*store)->steps().value_or(Steps()) : Steps();
  }

  void save(Engine& engine, std::uint64_t step) {
    trained_.step();
    const auto save = engine.save(step, trained_.state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    const auto done = engine.wait(save->ticket, SaveStage::persisted, kWaitMs);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    ASSERT_EQ(done->stage, SaveStage::persisted);
  }

  // The agent removes steps after it has answered.
  void expect_stored(const Steps& expected) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (stored() != expected && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(stored(), expected);
  }
};

TEST_F(EngineRotationTest, RemovesTheStepsThatItIsTold) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  for (const std::uint64_t step : Steps{1, 2, 3}) save(*engine, step);
  EXPECT_TRUE(engine->rotate(Steps{1, 7}, 2));  // there is no step 7
  expect_stored({2, 3});
  EXPECT_TRUE(engine->rotate(Steps{2, 3}, 2));  // step 3 is the newest
  expect_stored({3});
  expect_sound({3});
}

TEST_F(EngineRotationTest, CodesForWhatStays) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  save(*engine, 1);
  save(*engine, 2);
  EXPECT_EQ(info(2).base, 1u);  // all stay
  ASSERT_TRUE(engine->rotate({}, 1));
  save(*engine, 3);
  EXPECT_EQ(info(3).base, std::nullopt);  // step 2 goes
  ASSERT_TRUE(engine->rotate(Steps{1, 2}, 1));
  expect_stored({3});
  ASSERT_TRUE(engine->rotate({}, std::nullopt));
  save(*engine, 4);
  EXPECT_EQ(info(4).base, 3u);
  expect_sound({3, 4});
}

TEST_F(EngineRotationTest, KeepsWhatItIsNotTold) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  for (const std::uint64_t step : Steps{1, 2, 3, 4}) {
    ASSERT_TRUE(engine->rotate({}, 1));
    save(*engine, step);
  }
  expect_sound({1, 2, 3, 4});
}

TEST_F(EngineRotationTest, EndsWithTheTrainer) {
  const AgentThread agent(job_);
  EngineOptions wanted = options();
  wanted.retention.keep_last = 2;
  {
    const auto engine = attach(wanted);
    ASSERT_TRUE(engine->rotate({}, 5));
    for (const std::uint64_t step : Steps{1, 2, 3}) save(*engine, step);
    expect_sound({1, 2, 3});
  }
  const auto engine = attach(wanted);
  save(*engine, 4);
  expect_stored({3, 4});
}

TEST_F(EngineRotationTest, TakesMoreStepsThanAMessageHolds) {
  const AgentThread agent(job_);
  const auto engine = attach(options());
  for (const std::uint64_t step : Steps{1, 2}) save(*engine, step);
  Steps many(5000);
  for (std::size_t at = 0; at < many.size(); ++at) many[at] = UINT64_MAX / 2 - many.size() + at;
  many.back() = 1;
  ASSERT_TRUE(engine->rotate(many, 1));
  expect_stored({2});
}

TEST_F(EngineRotationTest, NeedsAnAgent) {
  std::optional<AgentThread> agent(job_);
  const auto engine = attach(options());
  save(*engine, 1);
  agent.reset();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
  while (engine->rotate({}, 1) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(engine->rotate({}, 1));
}

}  // namespace
}  // namespace bitsnap::engine
