// The agent program is a script that runs this test program with one test that is disabled otherwise: the agent.
#include "engine/agent_process_testing.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "os/process_watch.hpp"

namespace bitsnap::engine {
namespace {

constexpr const char* kJobVariable = "BITSNAP_TEST_AGENT_JOB";

TEST(AgentProcess, DISABLED_ServesTheJobThatItIsTold) {
  const char* const job = std::getenv(kJobVariable);
  ASSERT_NE(job, nullptr);
  RunAgentOptions options;
  options.job = job;
  options.hello_ms = 20'000;
  options.lower_priority = false;
  const auto end = run_agent(options);
  EXPECT_TRUE(end.has_value()) << end.error().message();
}

}  // namespace

std::string agent_program_in(const std::string& directory) {
  std::string self(4096, '\0');
  const ssize_t size = ::readlink("/proc/self/exe", self.data(), self.size());
  if (size <= 0) throw std::runtime_error("who am I?");
  self.resize(static_cast<std::size_t>(size));
  const std::string path = directory + "/agent";
  std::ofstream(path) << "#!/bin/sh\nunset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX\n"
                      << kJobVariable << "=\"$4\" exec '" << self
                      << "' --gtest_also_run_disabled_tests --gtest_filter=AgentProcess.*\n";
  if (::chmod(path.c_str(), 0700) != 0) throw std::runtime_error("no program");
  return path;
}

void kill_agent(const Engine& engine) {
  const auto watch = os::ProcessWatch::open(engine.agent_process());
  if (!watch) return;  // it has ended already
  static_cast<void>(watch->kill());
  static_cast<void>(watch->wait(10'000));
}

void signal_agent(const Engine& engine, int signal) { ::kill(static_cast<pid_t>(engine.agent_process()), signal); }

StoppedAgent::StoppedAgent(std::int64_t process) : process_(process) { ::kill(static_cast<pid_t>(process_), SIGSTOP); }

StoppedAgent::~StoppedAgent() { ::kill(static_cast<pid_t>(process_), SIGCONT); }

}  // namespace bitsnap::engine
