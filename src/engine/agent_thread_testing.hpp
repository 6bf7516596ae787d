// An agent on a thread of the test's own process: for tests of what passes between it and trainers.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include <bitsnap/engine.hpp>

#include "engine/agent.hpp"
#include "os/file_system.hpp"

namespace bitsnap::engine {

// A name that no other test, and no other run of this one, has.
[[nodiscard]] std::string unique_job();

// Runs until it is told to end, or destroyed.
class AgentThread {
 public:
  explicit AgentThread(const std::string& job, os::FileSystem& files = os::real_file_system());
  ~AgentThread();
  AgentThread(const AgentThread&) = delete;
  AgentThread& operator=(const AgentThread&) = delete;

  // Whether it ended by itself.
  [[nodiscard]] bool has_ended() const { return has_ended_.load(); }
  void join();

 private:
  const std::string job_;
  std::unique_ptr<Agent> agent_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

}  // namespace bitsnap::engine
