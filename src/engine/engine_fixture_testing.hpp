// Fixture for tests of trainers and agents: a job whose store is in a temporary directory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <bitsnap/engine.hpp>
#include <bitsnap/store.hpp>

#include "engine/agent_thread_testing.hpp"
#include "engine/packet.hpp"
#include "os/local_socket.hpp"
#include "os/memory_limit.hpp"
#include "os/temporary_directory_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {

class EngineFixture : public ::testing::Test {
 protected:
  EngineOptions options(const std::string& program = "") const {
    EngineOptions options;
    options.path = directory_.path() + "/run";
    options.job.name = job_;
    options.timeout_ms = kWaitMs;
    options.agent.threads = 2;
    options.agent.linger_ms = 300;
    options.agent.command = program;
    return options;
  }

  static std::unique_ptr<Engine> attach(const EngineOptions& options) {
    auto engine = Engine::attach(options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message();
    return engine ? std::move(*engine) : nullptr;
  }

  void expect_sound(const std::vector<std::uint64_t>& steps) { expect_sound(directory_.path() + "/run", steps); }
  static void expect_sound(const std::string& path, const std::vector<std::uint64_t>& steps) {
    const auto store = Store::open(path);
    ASSERT_TRUE(store.has_value()) << store.error().message();
    EXPECT_EQ((*store)->steps().value(), steps);
    const auto report = (*store)->verify({});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_TRUE(report->damages.empty());
  }

  os::TemporaryDirectory directory_;
  const std::string job_ = unique_job();
  store::Training trained_;
};

// Engine::attach() of a trainer whose store is on another file system.
[[nodiscard]] Result<std::unique_ptr<Engine>> attach_on(os::FileSystem& files, const EngineOptions& options);

// Engine::attach() of a trainer for which `memory` says how much memory is available.
[[nodiscard]] Result<std::unique_ptr<Engine>> attach_within(os::MemoryProbe memory, const EngineOptions& options);

// Plays an agent: answers `hello` itself and all else with `answer`. Returns when the connection closes or `answer`
// returns nullopt.
void play_agent(const os::LocalConnection& connection,
                const std::function<std::optional<Packet>(const Packet& packet)>& answer);

}  // namespace bitsnap::engine
