// Tensors of a device, which the engine copies together into memory that was prepared for it. The device is a stand-in:
// memory of this process.
#include <bitsnap/engine.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/agent_thread_testing.hpp"
#include "engine/engine_fixture_testing.hpp"
#include "engine/slot_layout.hpp"
#include "exec/executor.hpp"
#include "save/state_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

// Memory that was prepared for the copies of a device: sizes by address.
struct PinnedRanges {
  std::map<const std::byte*, std::size_t> sizes;
  std::size_t pinned = 0;  // how often
  bool had_lost_pages = false;

  std::shared_ptr<void> pin(std::span<std::byte> memory) {
    ++pinned;
    EXPECT_TRUE(sizes.emplace(memory.data(), memory.size()).second);
    return {memory.data(), [this](void* address) {
              const auto* const begin = static_cast<const std::byte*>(address);
              // A slot that was filled begins with its magic; after its pages were given back, with zeros.
              if (*begin == std::byte{0}) had_lost_pages = true;
              sizes.erase(begin);
            }};
  }
};

// The state, with every tensor but each third one on a device.
State on_device(State state, PinnedRanges* pinned = nullptr) {
  DeviceTensors device;
  std::vector<std::pair<const std::byte*, std::uint64_t>> memory;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (i % 3 == 2) continue;
    TensorSource& tensor = state.tensors[i];
    device.tensors.push_back(i);
    memory.emplace_back(tensor.data, tensor.info.size_bytes);
    tensor.read = [data = tensor.data](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
      std::memcpy(out.data(), data + offset, out.size());
      return {};
    };
    tensor.data = nullptr;
    tensor.read_brings_all = true;
  }
  device.copy = [memory](std::span<const std::span<std::byte>> to) -> Result<void> {
    EXPECT_EQ(to.size(), memory.size());
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (to[i].empty()) continue;
      EXPECT_EQ(to[i].size(), memory[i].second);
      std::memcpy(to[i].data(), memory[i].first, to[i].size());
    }
    return {};
  };
  if (pinned != nullptr) device.pin = [pinned](std::span<std::byte> range) { return pinned->pin(range); };
  state.device_tensors = std::move(device);
  return state;
}

class DeviceTensorsTest : public EngineFixture {
 protected:
  static Result<save::Bytes> filled(const State& state, unsigned threads) {
    auto plan = plan_slot(state);
    if (!plan) return tl::unexpected(plan.error());
    save::Bytes slot(plan->bytes);
    if (auto done = fill_slot(state, *plan, slot, *exec::make_executor(threads)); !done) {
      return tl::unexpected(done.error());
    }
    return slot;
  }

  Result<std::unique_ptr<Engine>> attach_with_limit() {
    return attach_within(
        [this]() -> Result<os::AvailableMemory> { return os::AvailableMemory{available_, 0, "a limit"}; }, options());
  }

  void save_and_expect(Engine& engine, std::uint64_t step, const State& state) {
    const auto save = engine.save(step, state);
    ASSERT_TRUE(save.has_value()) << save.error().message();
    const auto done = engine.wait(save->ticket, SaveStage::persisted, kWaitMs);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(done->stage, SaveStage::persisted) << (done->error ? done->error->message() : "");
    EXPECT_EQ(trained_.difference(**Store::open(engine.path()).value()->snapshot(step)), "");
  }

  std::uint64_t available_ = std::numeric_limits<std::uint64_t>::max();
};

TEST_F(DeviceTensorsTest, ASlotHasTheSameBytesWhereverTheTensorsAre) {
  State state = trained_.state();
  TensorSource& alias = state.tensors.emplace_back(state.tensors[0]);
  alias.info.name = "tied";
  alias.info.alias_of = 0;
  if ((state.tensors.size() - 1) % 3 == 2) state.tensors.push_back(save::source("more", DType::u8, {0}, {}));
  for (const unsigned threads : {1U, 3U}) {
    const auto expected = filled(state, threads);
    const auto found = filled(on_device(state), threads);
    ASSERT_TRUE(expected.has_value() && found.has_value());
    EXPECT_TRUE(*expected == *found);
  }
}

TEST_F(DeviceTensorsTest, AnErrorOfTheDeviceIsThatOfTheSave) {
  State state = on_device(trained_.state());
  state.device_tensors->copy = [](std::span<const std::span<std::byte>>) -> Result<void> {
    return fail(ErrorKind::io, "the device is gone");
  };
  const AgentThread agent(job_);
  const auto engine = attach(options());
  const auto save = engine->save(1, state);
  ASSERT_FALSE(save.has_value());
  EXPECT_NE(save.error().message().find("the device is gone"), std::string::npos);
  save_and_expect(*engine, 1, on_device(trained_.state()));
}

TEST_F(DeviceTensorsTest, IndicesThatAreNotThoseOfTensorsAreRefused) {
  for (const std::vector<std::size_t>& wrong : {std::vector<std::size_t>{1, 0}, {0, 0}, {0, 1'000'000}}) {
    State state = on_device(trained_.state());
    state.device_tensors->tensors = wrong;
    const auto plan = plan_slot(state);
    ASSERT_FALSE(plan.has_value());
    EXPECT_EQ(plan.error().kind(), ErrorKind::invalid_argument);
  }
}

TEST_F(DeviceTensorsTest, ASlotIsPinnedOnceAndUntilItIsUnmapped) {
  PinnedRanges pinned;
  const AgentThread agent(job_);
  {
    const auto engine = attach(options());
    for (std::uint64_t step = 1; step <= 5; ++step) {
      save_and_expect(*engine, step, on_device(trained_.state(), &pinned));
      trained_.step();
    }
    EXPECT_EQ(pinned.pinned, 2u);
    EXPECT_EQ(pinned.sizes.size(), 2u);
    // A state that needs another arena.
    const save::Bytes more(8'000'000);
    State grown = trained_.state();
    grown.tensors.push_back(save::source("more", DType::f32, {more.size() / 4}, more));
    ASSERT_TRUE(engine->save(6, on_device(grown, &pinned)).has_value());
    EXPECT_EQ(pinned.pinned, 3u);
    ASSERT_EQ(pinned.sizes.size(), 1u);
    EXPECT_GT(pinned.sizes.begin()->second, more.size());
    ASSERT_TRUE(engine->wait_all(kWaitMs).has_value());
  }
  EXPECT_TRUE(pinned.sizes.empty());
}

TEST_F(DeviceTensorsTest, ReservingPinsAllSlots) {
  PinnedRanges pinned;
  const AgentThread agent(job_);
  const auto engine = attach(options());
  ASSERT_TRUE(engine->reserve(on_device(trained_.state(), &pinned)).has_value());
  EXPECT_EQ(pinned.sizes.size(), 2u);
  save_and_expect(*engine, 1, on_device(trained_.state(), &pinned));
  EXPECT_EQ(pinned.pinned, 2u);
}

TEST_F(DeviceTensorsTest, ASlotIsNotPinnedWhenItsPagesAreGivenBack) {
  PinnedRanges pinned;
  const AgentThread agent(job_);
  const auto engine = attach_with_limit();
  ASSERT_TRUE(engine.has_value());
  save_and_expect(**engine, 1, on_device(trained_.state(), &pinned));
  trained_.step();
  save_and_expect(**engine, 2, on_device(trained_.state(), &pinned));
  ASSERT_EQ(pinned.sizes.size(), 2u);
  // A state that does not fit, and for which there is no memory: the pages of free slots are given back in vain.
  const save::Bytes more(8'000'000);
  State grown = trained_.state();
  grown.tensors.push_back(save::source("more", DType::f32, {more.size() / 4}, more));
  available_ = 0;
  ASSERT_FALSE((*engine)->save(3, on_device(grown, &pinned)).has_value());
  EXPECT_LT(pinned.sizes.size(), 2u);
  EXPECT_FALSE(pinned.had_lost_pages);
  available_ = std::numeric_limits<std::uint64_t>::max();
  for (std::uint64_t step = 3; step <= 5; ++step) {
    trained_.step();
    save_and_expect(**engine, step, on_device(trained_.state(), &pinned));
  }
  EXPECT_EQ(pinned.sizes.size(), 2u);
}

}  // namespace
}  // namespace bitsnap::engine
