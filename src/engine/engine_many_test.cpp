// Trainings with thousands of saves and hundreds of restarts: the memory, mappings and descriptors of agent and trainer
// do not grow.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "os/file_system_fake.hpp"
#include "os/forked_child_testing.hpp"
#include "os/memory.hpp"
#include "store/store_impl.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

// Sanitizers delay the freeing of memory and are slow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif
#else
constexpr bool kIsSanitized = false;
#endif
constexpr std::uint64_t kSlack = std::uint64_t{20} << 20;  // for allocators, which keep memory for each thread
constexpr const char* kPath = "/bitsnap-of-a-test/run";

// Number of mappings of shared memory. Other mappings belong to the allocator.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:bitsnap") != std::string::npos ? 1U : 0U;
  return count;
}

struct Held {
  std::uint64_t resident_bytes = os::process_memory().value().resident_bytes;
  std::size_t descriptors = os::open_descriptor_count();
  std::size_t mapped = mappings();
};

class EngineManyTest : public ::testing::Test {
 protected:
  EngineManyTest() { static_cast<void>(disk_.create_directory("/bitsnap-of-a-test")); }

  EngineOptions options(std::uint32_t rank = 0, std::uint32_t world_size = 1) const {
    EngineOptions options;
    options.path = kPath;
    options.job.name = job_;
    options.job.rank = rank;
    options.job.world_size = world_size;
    options.timeout_ms = kWaitMs;
    options.retention.keep_last = 2;
    options.threads = 1;
    options.agent.threads = 1;
    return options;
  }

  State state() const {
    State made;
    made.tensors.push_back(save::source("w", DType::bf16, {weight_.size() / 2}, weight_));
    return made;
  }

  // Runs `round` `rounds` times. After the first quarter, which warms up, no resource may grow.
  template <typename Round>
  void expect_level(std::uint64_t rounds, const Round& round) {
    Held before;
    for (std::uint64_t i = 1; i <= rounds; ++i) {
      save::change(weight_, 11, 1);
      round(i);
      if (::testing::Test::HasFailure()) return;
      if (i == rounds / 4) before = Held();
    }
    const Held after;
    EXPECT_LE(after.descriptors, before.descriptors + 2);
    EXPECT_LE(after.mapped, before.mapped + 4);
    // The slack is less than one state per round.
    if (!kIsSanitized) {
      EXPECT_LE(after.resident_bytes, before.resident_bytes + kSlack);
    }
  }

  os::FakeFileSystem disk_;
  const std::string job_ = unique_job();
  save::Bytes weight_ = save::bf16_weights(std::size_t{1} << 17, 1);
};

TEST_F(EngineManyTest, MemoryHoldsTheConfiguredNumberOfSteps) {
  const AgentThread agent(job_, disk_);
  constexpr std::uint64_t kSteps = kIsSanitized ? 1000 : 3000;
  weight_.resize(64);
  EngineOptions wanted = options();
  wanted.memory.snapshots = kSteps;
  wanted.memory.budget_bytes = std::uint64_t{100} << 20;
  const auto engine = attach_on(disk_, wanted);
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    const auto save = (*engine)->save(step, state(), false);
    ASSERT_TRUE(save.has_value()) << save.error().message();
  }
  const auto steps = (*engine)->steps();
  ASSERT_TRUE(steps.has_value()) << steps.error().message();
  ASSERT_EQ(steps->size(), kSteps);
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    EXPECT_EQ((*steps)[step - 1].step, step);
    EXPECT_TRUE((*steps)[step - 1].everywhere);
  }
}

TEST_F(EngineManyTest, ThousandsOfSavesDoNotGrowMemory) {
  const AgentThread agent(job_, disk_);
  const auto engine = attach_on(disk_, options());
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  constexpr std::uint64_t kSaves = kIsSanitized ? 500 : 2000;
  expect_level(kSaves, [&](std::uint64_t step) {
    const auto save = (*engine)->save(step, state(), step % 3 != 0);
    ASSERT_TRUE(save.has_value()) << save.error().message();
    if (step % 50 != 0) return;
    ASSERT_TRUE((*engine)->wait_all(kWaitMs).has_value());
    ASSERT_TRUE((*engine)->take_failures().empty());
    const auto restored = (*engine)->restore(step);
    ASSERT_TRUE(restored.has_value()) << restored.error().message();
    EXPECT_TRUE(restored->from_memory);
  });
  const auto report = nlohmann::json::parse(agent_status(job_, kWaitMs).value());
  EXPECT_EQ(report["ranks"][0]["saves"], kSaves);
  EXPECT_EQ(report["ranks"][0]["failed"], 0);
}

TEST_F(EngineManyTest, HundredsOfRestartsDoNotGrowMemory) {
  const AgentThread agent(job_, disk_);
  expect_level(200, [&](std::uint64_t step) {
    const auto engine = attach_on(disk_, options());
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    if (step > 1) {
      ASSERT_TRUE((*engine)->restore(step - 1).has_value());
    }
    const auto save = (*engine)->save(step, state());
    ASSERT_TRUE(save.has_value()) << save.error().message();
    if (step % 2 == 0) {
      ASSERT_TRUE((*engine)->wait_all(kWaitMs).has_value());
    }
  });
}

TEST_F(EngineManyTest, AllRanksSavingTogetherAreCommitted) {
  const AgentThread agent(job_, disk_);
  std::vector<std::unique_ptr<Engine>> engines;
  for (std::uint32_t rank = 0; rank < 3; ++rank) engines.push_back(attach_on(disk_, options(rank, 3)).value());
  expect_level(80, [&](std::uint64_t step) {
    for (const auto& engine : engines) {
      const auto save = engine->save(step, state());
      ASSERT_TRUE(save.has_value()) << save.error().message();
    }
    if (step % 20 != 0) return;
    for (const auto& engine : engines) {
      ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
      for (const SaveState& failed : engine->take_failures()) ADD_FAILURE() << failed.error->message();
    }
    const auto store = store::open_store(disk_, kPath, {.access = StoreAccess::read});
    // Pruning may follow after the save is reported.
    const std::vector<std::uint64_t> steps = (*store)->steps().value();
    EXPECT_TRUE(steps.back() == step && steps.size() <= 3) << steps.size();
  });
}

TEST_F(EngineManyTest, AForkedChildFailsWithoutWaitingForLocks) {
  const AgentThread agent(job_, disk_);
  auto engine = attach_on(disk_, options());
  ASSERT_TRUE(engine.has_value());
  const auto save = (*engine)->save(1, state());
  ASSERT_TRUE((*engine)->wait_all(kWaitMs).has_value());
  for (int round = 0; round < 20; ++round) {
    // While the parent forks, one of its threads makes calls and may hold any lock.
    std::atomic<bool> is_over = false;
    std::thread asking([&] {
      while (!is_over) {
        static_cast<void>((*engine)->steps());
        static_cast<void>((*engine)->look(save->ticket));
        static_cast<void>((*engine)->take_failures());
      }
    });
    const int said = os::returned_by_child([&]() -> int {
      ::alarm(5);
      const auto refuses = [](const auto& result) {
        return !result && result.error().kind() == ErrorKind::invalid_argument ? 0 : 1;
      };
      Engine& inherited = **engine;
      int wrong = refuses(inherited.save(2, state())) + refuses(inherited.reserve(state())) +
                  refuses(inherited.look(save->ticket)) +
                  refuses(inherited.wait(save->ticket, SaveStage::persisted, kWaitMs)) +
                  refuses(inherited.wait_all(kWaitMs)) + refuses(inherited.steps()) + refuses(inherited.latest()) +
                  refuses(inherited.restore(1));
      wrong += inherited.take_failures().empty() ? 0 : 1;
      wrong += inherited.path() == kPath ? 0 : 1;
      wrong += inherited.agent_process() == 0 && inherited.arena_bytes() == 0 ? 0 : 1;
      engine->reset();
      return wrong;
    });
    is_over = true;
    asking.join();
    EXPECT_EQ(said, 0);
  }
  save::change(weight_, 11, 1);
  const auto next = (*engine)->save(2, state());
  ASSERT_TRUE(next.has_value()) << next.error().message();
  EXPECT_EQ((*engine)->wait(next->ticket, SaveStage::persisted, kWaitMs)->stage, SaveStage::persisted);
}

}  // namespace
}  // namespace bitsnap::engine
