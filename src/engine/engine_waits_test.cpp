// How long a trainer waits for an agent that is stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/agent_process_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "os/clock.hpp"

namespace bitsnap::engine {
namespace {

using ::testing::HasSubstr;

using EngineWaitsTest = EngineFixture;

TEST_F(EngineWaitsTest, AStoppedAgentIsNamedWithWhatToDo) {
  auto engine = attach(options(agent_program_in(directory_.path())));
  ASSERT_NE(engine, nullptr);
  const std::int64_t process = engine->agent_process();
  engine.reset();
  const StoppedAgent stopped(process);
  EngineOptions wanted = options();
  wanted.wait_ms = 300;
  const os::Stopwatch stopwatch;
  const auto next = Engine::attach(wanted);
  EXPECT_LT(stopwatch.elapsed_seconds(), 2);
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
  EXPECT_LT(listing.elapsed_seconds(), 1.2);
  const os::Stopwatch restoring;
  const auto restored = engine->restore(1, {}, 400);
  EXPECT_LT(restoring.elapsed_seconds(), 1.2);
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_FALSE(restored->from_memory);
  ASSERT_TRUE(restored->memory_error.has_value());
  EXPECT_THAT(restored->memory_error->message(), HasSubstr("kill -CONT"));
  EXPECT_EQ(trained_.difference(*restored->snapshot), "");
}

}  // namespace
}  // namespace bitsnap::engine
