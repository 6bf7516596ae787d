// Agents in processes of their own, which tests kill and stop. A trainer starts them through
// AgentOptions::command.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/engine.hpp>

namespace bitsnap::engine {

// Writes an executable into the directory that runs this test program as an agent. Returns its path.
[[nodiscard]] std::string agent_program_in(const std::string& directory);

// Both act on the present agent of the Engine.
void kill_agent(const Engine& engine);                // sends SIGKILL and waits for the end
void signal_agent(const Engine& engine, int signal);  // does not wait

// Stops the agent's process while this object exists.
class StoppedAgent {
 public:
  explicit StoppedAgent(std::int64_t process);
  ~StoppedAgent();
  StoppedAgent(const StoppedAgent&) = delete;
  StoppedAgent& operator=(const StoppedAgent&) = delete;

 private:
  const std::int64_t process_;
};

}  // namespace bitsnap::engine
