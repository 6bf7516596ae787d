// Starts an agent on a thread, and ends it.
#include "engine/agent_thread_testing.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "os/process.hpp"
#include "os/random.hpp"

namespace bitsnap::engine {

std::string unique_job() {
  static std::atomic<unsigned> count = 0;
  return fmt::format("test-{}-{}-{:x}", os::process_id(), ++count, os::random_u64() & 0xffffff);
}

AgentThread::AgentThread(const std::string& job, os::FileSystem& files) : job_(job) {
  RunAgentOptions options;
  options.job = job;
  options.hello_ms = 20'000;
  auto agent = Agent::start(options, files);
  if (!agent) throw std::runtime_error(agent.error().message());
  agent_ = std::move(*agent);
  thread_ = std::thread([this] {
    static_cast<void>(agent_->run());
    has_ended_.store(true);
  });
}

AgentThread::~AgentThread() {
  if (!thread_.joinable()) return;
  if (!has_ended()) agent_->end();
  thread_.join();
}

void AgentThread::join() { thread_.join(); }

}  // namespace bitsnap::engine
