// How long a trainer waits for an agent that is stopped, and how an agent works while a trainer waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "engine/agent_process_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "engine/raw_connection_testing.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"
#include "os/file_system_faulty.hpp"

namespace bitsnap::engine {
namespace {

using os::FaultyFileSystem;
using os::FileOperation;
using ::testing::HasSubstr;

class EngineWaitsTest : public EngineFixture {
 protected:
  void expect_urgent(bool is_urgent) {
    const os::Stopwatch stopwatch;
    while (exec::is_urgent() != is_urgent && stopwatch.elapsed_seconds() < 10) ::usleep(1000);
    EXPECT_EQ(exec::is_urgent(), is_urgent);
  }
};

TEST_F(EngineWaitsTest, AStoppedAgentIsNamedWithWhatToDo) {
  auto engine = attach(options(agent_program_in(directory_.path())));
  ASSERT_NE(engine, nullptr);
  const std::int64_t process = engine->agent_process();
  engine.reset();
  const StoppedAgent stopped(process);
  EngineOptions wanted = options();
  wanted.timeout_ms = 300;
  const os::Stopwatch stopwatch;
  const auto next = Engine::attach(wanted);
  EXPECT_LT(stopwatch.elapsed_seconds(), kSoonSeconds);
  ASSERT_FALSE(next.has_value());
  EXPECT_EQ(next.error().kind(), ErrorKind::busy);
  EXPECT_THAT(next.error().message(), HasSubstr("it is stopped by a signal or a debugger"));
  EXPECT_THAT(next.error().message(), HasSubstr("'kill -CONT " + std::to_string(process) + "'"));
}

TEST_F(EngineWaitsTest, RestoringEndsWithinItsTimeout) {
  const auto engine = attach(options(agent_program_in(directory_.path())));
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(engine->save(1, trained_.state()).has_value());
  ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  const StoppedAgent stopped(engine->agent_process());
  const os::Stopwatch listing;
  EXPECT_EQ(engine->steps(400).error().kind(), ErrorKind::busy);
  EXPECT_LT(listing.elapsed_seconds(), kSoonSeconds);
  const os::Stopwatch restoring;
  const auto restored = engine->restore(1, {}, 400);
  EXPECT_LT(restoring.elapsed_seconds(), kSoonSeconds);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_FALSE(restored->from_memory);
  ASSERT_TRUE(restored->memory_error.has_value());
  EXPECT_THAT(restored->memory_error->message(), HasSubstr("kill -CONT"));
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
}

TEST_F(EngineWaitsTest, TheAgentHurriesWhileASaveWaitsForASlot) {
  std::atomic<bool> is_held = true;
  FaultyFileSystem slow(os::real_file_system());
  slow.watch([&](const FaultyFileSystem::Step& step) {
    if (step.operation != FileOperation::append || !step.path.ends_with(".bsnap")) return;
    while (is_held) ::usleep(1000);
  });
  const AgentThread agent(job_, slow);
  const auto engine = attach(options());
  ASSERT_NE(engine, nullptr);
  for (std::uint64_t step = 1; step <= 2; ++step) ASSERT_TRUE(engine->save(step, trained_.state()).has_value());
  EXPECT_FALSE(exec::is_urgent());
  std::thread third([&] { EXPECT_TRUE(engine->save(3, trained_.state()).has_value()); });
  expect_urgent(true);
  is_held = false;
  third.join();
  expect_urgent(false);
  EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
}

TEST_F(EngineWaitsTest, TheAgentHurriesWhileATrainerWaitsForASave) {
  std::atomic<bool> is_held = true;
  FaultyFileSystem slow(os::real_file_system());
  slow.watch([&](const FaultyFileSystem::Step& step) {
    if (step.operation != FileOperation::append || !step.path.ends_with(".bsnap")) return;
    while (is_held) ::usleep(1000);
  });
  const AgentThread agent(job_, slow);
  const auto engine = attach(options());
  ASSERT_NE(engine, nullptr);
  const auto save = engine->save(1, trained_.state());
  ASSERT_TRUE(save.has_value());
  // A thread that only watches changes nothing.
  EXPECT_FALSE(engine->wait(save->ticket, SaveStage::persisted, 300, false).has_value());
  EXPECT_FALSE(exec::is_urgent());
  for (const bool waits_for_all : {false, true}) {
    std::thread waiting([&] {
      if (waits_for_all) {
        EXPECT_TRUE(engine->wait_all(kWaitMs).has_value());
      } else {
        EXPECT_FALSE(engine->wait(save->ticket, SaveStage::persisted, 500).has_value());
      }
    });
    expect_urgent(true);
    if (waits_for_all) is_held = false;
    waiting.join();
    expect_urgent(false);
  }
}

TEST_F(EngineWaitsTest, TheAgentHurriesForTrainersThatLive) {
  const AgentThread agent(job_);
  {
    RawConnection trainer(job_);
    RawConnection other(job_);
    ASSERT_TRUE(trainer.say_hello(job_, directory_.path(), 0, 2).has_value());
    ASSERT_TRUE(other.say_hello(job_, directory_.path(), 1, 2).has_value());
    trainer.send(MessageKind::hurry, serialize_body(Hurry{true}));
    other.send(MessageKind::hurry, serialize_body(Hurry{true}));
    expect_urgent(true);
    other.send(MessageKind::hurry, serialize_body(Hurry{false}));
    ASSERT_TRUE(other.ask(MessageKind::list, serialize_body(ListRequest{0})).has_value());
    EXPECT_TRUE(exec::is_urgent());
  }
  expect_urgent(false);
}

}  // namespace
}  // namespace bitsnap::engine
