// An agent on a thread of the test's own process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <bitsnap/engine.hpp>

#include "engine/agent.hpp"
#include "os/file_system.hpp"

namespace bitsnap::engine {

// How long a test waits for what has to come. Nothing takes nearly as long.
constexpr std::uint64_t kWaitMs = 30'000;
// What does not wait is done by then, also on a busy machine; what waits for what never comes takes kWaitMs.
constexpr double kSoonSeconds = 25;

// A job name that is unique over all tests and runs.
[[nodiscard]] std::string unique_job();

// Owns the agent and its thread. The destructor ends the agent.
class AgentThread {
 public:
  explicit AgentThread(const std::string& job, os::FileSystem& files = os::real_file_system());
  ~AgentThread();
  AgentThread(const AgentThread&) = delete;
  AgentThread& operator=(const AgentThread&) = delete;

  // Whether the agent has ended.
  [[nodiscard]] bool has_ended() const { return has_ended_.load(); }
  void join();

 private:
  const std::string job_;
  std::unique_ptr<Agent> agent_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace bitsnap::engine
