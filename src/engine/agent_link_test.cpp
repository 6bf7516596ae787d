// A link whose agent goes: the order in which `on_lost` and waiting calls learn of it.
#include "engine/agent_link.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace bitsnap::engine {
namespace {

constexpr std::int64_t kAnswerMs = 60'000;

// A connected pair: one end is the link's, the other the test's, which plays the agent.
class LinkWithAgent {
 public:
  LinkWithAgent() {
    auto ends = os::LocalConnection::pair().value();
    agent.emplace(std::move(ends.second));
    link = AgentLink::open(std::move(ends.first), nullptr, [this](const Error&) {
             // A call that did not wait for this callback would return first.
             std::this_thread::sleep_for(std::chrono::milliseconds(100));
             is_told = true;
           }).value();
  }

  std::optional<os::LocalConnection> agent;
  std::atomic<bool> is_told = false;
  std::unique_ptr<AgentLink> link;
};

TEST(AgentLinkTest, OnLostRunsBeforeAWaitingCallFails) {
  LinkWithAgent both;
  std::thread agent([&] {
    EXPECT_TRUE(both.agent->receive(kMaxPacketBytes, 1, kAnswerMs).value());
    both.agent.reset();
  });
  const auto answer = both.link->call(MessageKind::list, "{}", MessageKind::steps, kAnswerMs);
  EXPECT_TRUE(both.is_told);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind(), ErrorKind::io);
  EXPECT_TRUE(both.link->is_lost());
  agent.join();
}

TEST(AgentLinkTest, OnLostRunsBeforeANewCallFails) {
  LinkWithAgent both;
  both.agent.reset();
  const auto answer = both.link->call(MessageKind::list, "{}", MessageKind::steps, kAnswerMs);
  EXPECT_TRUE(both.is_told);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().kind(), ErrorKind::io);
  EXPECT_TRUE(both.link->is_lost());
}

}  // namespace
}  // namespace bitsnap::engine
