// Trainer and agent under a filter of system calls, as in a container: states are saved and restored without each of
// the calls that the engine can do without.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "engine/agent_process_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "os/forked_child_testing.hpp"
#include "os/system_call_filter_testing.hpp"

namespace bitsnap::engine {
namespace {

class EngineFilterTest : public EngineFixture {
 protected:
  // What went wrong, as the status of a process; 0: nothing.
  int saves_and_restores(const EngineOptions& wanted) {
    ::alarm(60);
    auto engine = Engine::attach(wanted);
    if (!engine) {
      std::fprintf(stderr, "%s\n", engine.error().message().c_str());
      return 1;
    }
    for (std::uint64_t step = 1; step <= 3; ++step) {
      trained_.step();
      if (!(*engine)->save(step, trained_.state())) return 2;
    }
    if (!(*engine)->wait_all(kWaitMs) || !(*engine)->take_failures().empty()) return 3;
    for (std::uint64_t step = 1; step <= 3; ++step) {
      const auto restored = (*engine)->restore(step);
      if (!restored) return 4;
      if (step == 3 && (!restored->from_memory || !trained_.difference(*restored->snapshot).empty())) return 5;
    }
    // The next trainer finds the arena of this one.
    engine->reset();
    engine = Engine::attach(wanted);
    if (!engine || (*engine)->arena_bytes() == 0) return 6;
    return stop_agent(job_, false, kWaitMs) ? 0 : 7;
  }
};

TEST_F(EngineFilterTest, SavesAndRestoresWithoutACallThatIsRefused) {
  EngineOptions wanted = options(agent_program_in(directory_.path()));
  wanted.agent.linger_ms = kWaitMs;  // the agent waits for the second trainer, however slow the machine is
  for (const os::RefusedCall& call : os::refusable_calls()) {
    for (const int error : {EPERM, ENOSYS}) {
      const int said = os::returned_by_child([&] {
        EngineOptions own = wanted;
        own.path += "-" + std::to_string(call.number) + "-" + std::to_string(call.value) + "-" + std::to_string(error);
        return os::refuse_call(call, error) ? saves_and_restores(own) : 100;
      });
      if (said == 100) GTEST_SKIP() << "the system refuses filters of system calls";
      EXPECT_EQ(said, 0) << call.name << ", error " << error;
    }
  }
}

}  // namespace
}  // namespace bitsnap::engine
