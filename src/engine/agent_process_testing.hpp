// Agents that are processes of their own, started as a trainer starts them: to be killed and stopped by tests.
#pragma once

#include <cstdint>
#include <string>

#include <bitsnap/engine.hpp>

namespace bitsnap::engine {

// Writes a program into the directory that is an agent, by running this test program for nothing but that; its path.
[[nodiscard]] std::string agent_program_in(const std::string& directory);

// Of whoever is an Engine's agent now.
void kill_agent(const Engine& engine);                // as the system does, without a word; waits for its end
void signal_agent(const Engine& engine, int signal);  // and does not wait

// An agent that gets nothing done as long as this lives.
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
