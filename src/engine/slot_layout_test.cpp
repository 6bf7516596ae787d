// States written to slots and read back, and slots with invalid contents.
#include "engine/slot_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "container/directory.hpp"
#include "os/shared_memory.hpp"
#include "save/state_testing.hpp"
#include "store/training_testing.hpp"

namespace bitsnap::engine {
namespace {

using save::Bytes;
using save::random_bytes;
using save::source;

std::string bytes_of(const TensorSource& tensor) {
  if (tensor.data == nullptr) return {};
  return std::string(reinterpret_cast<const char*>(tensor.data), tensor.info.size_bytes);
}

// A slot as a trainer fills it, with some spare bytes behind the state.
struct Slot {
  SlotPlan plan;
  Bytes bytes;
};

Slot filled(const State& state, unsigned threads = 2) {
  Slot slot;
  auto plan = plan_slot(state);
  EXPECT_TRUE(plan.has_value()) << plan.error().message();
  if (!plan) return slot;
  slot.plan = std::move(*plan);
  slot.bytes.assign(slot.plan.bytes + 100, std::byte{0xEE});
  const auto executor = exec::make_executor(threads);
  const auto done = fill_slot(state, slot.plan, slot.bytes, *executor);
  EXPECT_TRUE(done.has_value()) << done.error().message();
  return slot;
}

// A state with every feature, but so small that each byte of its slot can be changed.
class SlotLayoutTest : public ::testing::Test {
 protected:
  SlotLayoutTest() {
    state_.tensors.push_back(source("w", DType::bf16, {8, 5}, weight_));
    state_.tensors.push_back(source("master", DType::f32, {8, 5}, master_));
    TensorSource& tied = state_.tensors.emplace_back(source("tied", DType::bf16, {8, 5}, weight_));
    tied.info.alias_of = 0;
    state_.tensors.push_back(source("empty", DType::f32, {0, 7}, nothing_));
    state_.tensors.push_back(source("exp_avg", DType::f32, {8, 5}, moment_));
    state_.tensors.push_back(source("scalar", DType::i64, {}, count_));
    state_.tensors[0].master = MasterSlice{"master", 0};
    state_.tensors[4].adam =
        AdamNumbers{std::bit_cast<double>(std::uint64_t{0x7ff8'dead'beef'0001}), -0.0, 5e-324, UINT64_MAX};
    state_.metadata = {{"who", "me"}, {"empty", ""}};
    ValueDict tree;
    tree.entries.emplace_back(Value(std::string("lr")), Value(1e-4));
    tree.entries.emplace_back(Value(std::int64_t{-7}), Value(ValueTensor{.index = 1}));
    state_.tree = Value(std::move(tree));
  }

  const Bytes weight_ = random_bytes(80, 1);
  const Bytes master_ = random_bytes(160, 2);
  const Bytes moment_ = random_bytes(160, 3);
  const Bytes count_ = random_bytes(8, 4);
  const Bytes nothing_;
  State state_;
};

void expect_same(const State& expected, const State& found) {
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    const TensorSource& a = expected.tensors[i];
    const TensorSource& b = found.tensors[i];
    EXPECT_EQ(b.info.name, a.info.name);
    EXPECT_EQ(b.info.dtype, a.info.dtype);
    EXPECT_EQ(b.info.shape, a.info.shape);
    EXPECT_EQ(b.info.alias_of, a.info.alias_of);
    EXPECT_EQ(b.info.role, a.info.role);
    EXPECT_EQ(b.info.size_bytes, a.info.size_bytes);
    EXPECT_EQ(bytes_of(b), a.info.alias_of ? std::string() : bytes_of(a)) << a.info.name;
    EXPECT_EQ(b.master.has_value(), a.master.has_value());
    if (a.master && b.master) {
      EXPECT_EQ(b.master->tensor, a.master->tensor);
      EXPECT_EQ(b.master->element, a.master->element);
    }
    EXPECT_EQ(b.adam.has_value(), a.adam.has_value());
    if (a.adam && b.adam) {
      const auto bits = [](const AdamNumbers& adam) {
        return std::array{std::bit_cast<std::uint64_t>(adam.beta1), std::bit_cast<std::uint64_t>(adam.beta2),
                          std::bit_cast<std::uint64_t>(adam.eps), adam.step};
      };
      EXPECT_EQ(bits(*a.adam), bits(*b.adam));
    }
  }
  EXPECT_EQ(found.metadata, expected.metadata);
  EXPECT_EQ(found.tree.has_value(), expected.tree.has_value());
  if (expected.tree && found.tree) {
    EXPECT_EQ(*serialize_value(*found.tree), *serialize_value(*expected.tree));
  }
  EXPECT_EQ(found.safetensors_header, expected.safetensors_header);
}

TEST_F(SlotLayoutTest, StatesRoundTrip) {
  const Slot slot = filled(state_);
  const auto read = read_slot(slot.bytes, slot.plan.bytes);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  expect_same(state_, *read);
  for (const TensorSource& tensor : read->tensors) {
    if (tensor.data == nullptr) continue;
    EXPECT_EQ((tensor.data - slot.bytes.data()) % static_cast<std::ptrdiff_t>(kTensorAlignment), 0) << tensor.info.name;
  }
  // Bytes behind the state are not written.
  for (std::size_t i = slot.plan.bytes; i < slot.bytes.size(); ++i) ASSERT_EQ(slot.bytes[i], std::byte{0xEE});
}

TEST_F(SlotLayoutTest, TensorsOfAReadStateLieInTheSlot) {
  const Slot slot = filled(state_);
  const auto read = read_slot(slot.bytes, slot.plan.bytes);
  const auto spans = tensor_bytes(*read);
  ASSERT_EQ(spans.size(), state_.tensors.size());
  EXPECT_EQ(spans[0].data(), slot.bytes.data() + slot.plan.offsets[0]);
  EXPECT_EQ(spans[0].size(), weight_.size());
  EXPECT_TRUE(spans[2].empty());
  EXPECT_TRUE(spans[3].empty());
}

// What is planned is always what a new planner plans.
TEST_F(SlotLayoutTest, APlannerChecksOnlyTensorsThatChanged) {
  SlotPlanner planner;
  std::uint64_t checked = 0;
  const auto expect_planned = [&](bool is_checked) {
    const auto plan = planner.plan(state_);
    const auto expected = plan_slot(state_);
    ASSERT_EQ(plan.has_value(), expected.has_value());
    if (plan) {
      EXPECT_EQ(plan->directory, expected->directory);
      EXPECT_EQ(plan->details, expected->details);
      EXPECT_EQ(plan->offsets, expected->offsets);
      EXPECT_EQ(std::tuple(plan->tensors_offset, plan->bytes, plan->raw_bytes),
                std::tuple(expected->tensors_offset, expected->bytes, expected->raw_bytes));
    }
    if (is_checked) checked += state_.tensors.size();
    EXPECT_EQ(planner.checked_tensors(), checked);
  };
  expect_planned(true);
  expect_planned(false);
  // Other memory, values and numbers of Adam.
  const Bytes other = random_bytes(80, 9);
  state_.tensors[0].data = other.data();
  state_.tree = Value(0.5);
  state_.metadata = {{"step", "8"}};
  state_.tensors[4].adam->step = 7;
  expect_planned(false);
  state_.tree.reset();
  expect_planned(false);

  TensorSource& moment = state_.tensors[4];
  moment.info.name = "exp_avg_sq";
  expect_planned(true);
  moment.info.role = Role::exp_avg_sq;
  expect_planned(true);
  moment.info.shape = {40};
  expect_planned(true);
  moment.info.dtype = DType::u32;
  moment.info.dtype_name = "U32";
  expect_planned(true);
  state_.tensors[0].master->element = 40;  // beyond the master
  expect_planned(true);
  expect_planned(true);
  state_.tensors[0].master.reset();
  expect_planned(true);
  state_.tensors[2].info.alias_of.reset();
  expect_planned(true);
  state_.tensors.pop_back();
  expect_planned(true);
  expect_planned(false);
  const auto data = std::exchange(state_.tensors[1].data, nullptr);
  expect_planned(true);
  state_.tensors[1].data = data;
  expect_planned(true);
}

TEST_F(SlotLayoutTest, AnEmptyStateRoundTrips) {
  const Slot slot = filled({});
  const auto read = read_slot(slot.bytes, slot.plan.bytes);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_TRUE(read->tensors.empty());
  EXPECT_FALSE(read->tree.has_value());
}

TEST_F(SlotLayoutTest, CopiesLargeTensorsWithAnyNumberOfThreads) {
  const Bytes large = random_bytes((std::size_t{9} << 20) + 13, 5);
  State state;
  state.tensors.push_back(source("large", DType::u8, {large.size()}, large));
  TensorSource& asked = state.tensors.emplace_back(source("asked", DType::u8, {large.size()}, large));
  asked.data = nullptr;
  std::atomic<unsigned> calls = 0;
  asked.read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    ++calls;
    std::memcpy(out.data(), large.data() + offset, out.size());
    return {};
  };
  for (const bool brings_all : {false, true}) {
    calls = 0;
    state.tensors[1].read_brings_all = brings_all;
    for (const unsigned threads : {1U, 4U}) {
      const Slot slot = filled(state, threads);
      const auto read = read_slot(slot.bytes, slot.plan.bytes);
      ASSERT_TRUE(read.has_value());
      const std::string expected = bytes_of(state.tensors[0]);
      EXPECT_TRUE(bytes_of(read->tensors[0]) == expected);
      EXPECT_TRUE(bytes_of(read->tensors[1]) == expected);
    }
    EXPECT_EQ(calls.load(), brings_all ? 2u : 6u);
  }
}

TEST_F(SlotLayoutTest, TheErrorNamesATensorThatCannotBeRead) {
  TensorSource& asked = state_.tensors[4];
  asked.data = nullptr;
  asked.read = [](std::uint64_t, std::span<std::byte>) -> Result<void> { return fail(ErrorKind::io, "gone"); };
  const auto plan = plan_slot(state_);
  ASSERT_TRUE(plan.has_value());
  Bytes slot(plan->bytes);
  const auto done = fill_slot(state_, *plan, slot, *exec::make_executor(1));
  ASSERT_FALSE(done.has_value());
  EXPECT_NE(done.error().message().find("exp_avg"), std::string::npos);
}

TEST_F(SlotLayoutTest, ASafetensorsHeaderRoundTrips) {
  const std::string header =
      R"( {"w":{"dtype":"U8","shape":[80],"data_offsets":[0,80]},"__metadata__":{"a":"ä\u0000"}}  )";
  State state;
  state.tensors.push_back(source("w", DType::u8, {80}, weight_));
  state.safetensors_header = header;
  const Slot slot = filled(state);
  const auto read = read_slot(slot.bytes, slot.plan.bytes);
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->safetensors_header, header);
}

TEST_F(SlotLayoutTest, RefusesInvalidStatesBeforeCopying) {
  const auto expect_refused = [](const State& state, const char* what) {
    const auto plan = plan_slot(state);
    ASSERT_FALSE(plan.has_value()) << what;
    EXPECT_EQ(plan.error().kind(), ErrorKind::invalid_argument) << what;
  };
  State twice = state_;
  twice.tensors[1].info.name = "w";
  expect_refused(twice, "a name twice");
  State text = state_;
  text.tensors[1].info.name = "\xff";
  expect_refused(text, "a name that is no text");
  State alias = state_;
  alias.tensors[2].info.alias_of = 5;
  expect_refused(alias, "an alias before its tensor");
  State size = state_;
  size.tensors[1].info.size_bytes = 159;
  expect_refused(size, "a size that is not that of the shape");
  State master = state_;
  master.tensors[0].master = MasterSlice{"nobody", 0};
  expect_refused(master, "a master that is not there");
  State slice = state_;
  slice.tensors[0].master = MasterSlice{"master", 1};
  expect_refused(slice, "more elements than the master has");
  State header = state_;
  header.safetensors_header = "\xff";
  expect_refused(header, "a header that is no text");
}

// Checks that reading fails or returns tensors inside the slot.
void expect_inside(ConstByteSpan slot, std::uint64_t bytes) {
  const auto read = read_slot(slot, bytes);
  if (!read) return;
  for (const ConstByteSpan tensor : tensor_bytes(*read)) {
    if (tensor.empty()) continue;
    ASSERT_GE(tensor.data(), slot.data());
    ASSERT_LE(tensor.data() + tensor.size(), slot.data() + bytes);
  }
}

TEST_F(SlotLayoutTest, RejectsEveryTruncation) {
  const Slot slot = filled(state_);
  for (std::uint64_t bytes = 0; bytes < slot.plan.bytes; ++bytes) {
    const auto read = read_slot(slot.bytes, bytes);
    ASSERT_FALSE(read.has_value()) << bytes;
    EXPECT_EQ(read.error().kind(), ErrorKind::corrupt) << bytes << read.error().message();
  }
  EXPECT_EQ(read_slot(slot.bytes, slot.bytes.size() + 1).error().kind(), ErrorKind::corrupt);
  EXPECT_EQ(read_slot(slot.bytes, UINT64_MAX).error().kind(), ErrorKind::corrupt);
  EXPECT_FALSE(read_slot({}, 0).has_value());
}

TEST_F(SlotLayoutTest, ReadingFlippedBytesStaysInTheSlot) {
  Slot slot = filled(state_);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < slot.plan.tensors_offset; ++at) {
    for (const unsigned flip : {0x01U, 0x10U, 0x80U, 0xFFU}) {
      const std::byte before = slot.bytes[at];
      slot.bytes[at] ^= static_cast<std::byte>(flip);
      expect_inside(slot.bytes, slot.plan.bytes);
      if (at < 32) {
        EXPECT_FALSE(read_slot(slot.bytes, slot.plan.bytes).has_value()) << at;
      }
      refused += read_slot(slot.bytes, slot.plan.bytes).has_value() ? 0U : 1U;
      slot.bytes[at] = before;
    }
  }
  EXPECT_GT(refused, slot.plan.tensors_offset);
}

TEST_F(SlotLayoutTest, RejectsRandomBytes) {
  std::mt19937_64 random(7);
  for (unsigned round = 0; round < 2000; ++round) {
    Bytes slot = random_bytes(static_cast<std::size_t>(random() % 300), round);
    if (slot.size() >= 8 && round % 2 == 0) std::memcpy(slot.data(), "BSNASLOT", 8);
    for (std::size_t at = 8; at + 8 <= std::min<std::size_t>(slot.size(), 32); at += 8) {
      if (round % 4 == 0) store_le(slot.data() + at, random() % 300);
    }
    EXPECT_FALSE(read_slot(slot, slot.size()).has_value());
  }
}

TEST_F(SlotLayoutTest, RejectsSizesThatOverflow) {
  const Slot slot = filled(state_);
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{1} << 28, (std::uint64_t{1} << 28) + 1, std::uint64_t{1} << 32,
        std::uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 31, UINT64_MAX - 63, UINT64_MAX - 4095}) {
    for (const std::size_t field : {8U, 16U, 24U}) {
      Bytes other = slot.bytes;
      store_le(other.data() + field, value);
      EXPECT_FALSE(read_slot(other, slot.plan.bytes).has_value()) << field << " " << value;
      // A second wrong size that cancels the first one modulo 2^64.
      for (const std::size_t second : {8U, 16U, 24U}) {
        if (second == field) continue;
        Bytes both = other;
        store_le(both.data() + second, 0 - value);
        expect_inside(both, slot.plan.bytes);
      }
    }
  }
}

// A slot with these texts, and `room` bytes for tensors.
Bytes made_of(std::string_view directory, std::string_view details, std::size_t room) {
  const std::size_t begin = (32 + directory.size() + details.size() + 63) / 64 * 64;
  std::array<std::byte, 24> sizes{};
  store_le(sizes.data(), std::uint64_t{directory.size()});
  store_le(sizes.data() + 8, std::uint64_t{details.size()});
  store_le(sizes.data() + 16, std::uint64_t{begin});
  std::string slot = "BSNASLOT" + std::string(as_text(sizes)) + std::string(directory) + std::string(details);
  slot.resize(begin + room);
  const ConstByteSpan bytes = as_byte_span(slot);
  return Bytes(bytes.begin(), bytes.end());
}

TEST_F(SlotLayoutTest, RejectsADirectoryThatDoesNotFit) {
  const SlotPlan plan = *plan_slot(state_);
  const auto room = static_cast<std::size_t>(plan.bytes - plan.tensors_offset);
  const Bytes whole = made_of(plan.directory, plan.details, room);
  ASSERT_TRUE(read_slot(whole, whole.size()).has_value());
  const Bytes small = made_of(plan.directory, plan.details, room - 1);
  EXPECT_EQ(read_slot(small, small.size()).error().kind(), ErrorKind::corrupt);

  // Tensors whose sizes overflow 2^64 in total, although no single one does.
  container::Content content;
  for (int i = 0; i < 5; ++i) {
    TensorInfo& info = content.tensors.emplace_back();
    info.name = "t" + std::to_string(i);
    info.dtype = DType::u8;
    info.dtype_name = "U8";
    info.shape = {std::uint64_t{1} << 62};
    info.size_bytes = info.shape[0];
  }
  content.pool_offsets.resize(content.tensors.size());
  const auto directory = container::serialize_content(content);
  ASSERT_TRUE(directory.has_value()) << directory.error().message();
  const Bytes huge = made_of(*directory, "{}", 4096);
  DecodeLimits limits;
  limits.tensor_bytes = UINT64_MAX;
  EXPECT_EQ(read_slot(huge, huge.size(), limits).error().kind(), ErrorKind::corrupt);
}

TEST_F(SlotLayoutTest, RejectsInvalidDetails) {
  const SlotPlan plan = *plan_slot(state_);
  const auto room = static_cast<std::size_t>(plan.bytes - plan.tensors_offset);
  const std::string one = "\"3ff0000000000000\"";
  const std::vector<std::string> all = {"",
                                        "[]",
                                        "{",
                                        R"({"masters":1})",
                                        R"({"masters":[1]})",
                                        R"({"masters":[[]]})",
                                        R"({"masters":[[0,"a"]]})",
                                        R"({"masters":[[0,"a",0,0]]})",
                                        R"({"masters":[[6,"a",0]]})",
                                        R"({"masters":[[-1,"a",0]]})",
                                        R"({"masters":[[0,1,0]]})",
                                        R"({"masters":[[0,"a",-1]]})",
                                        R"({"masters":[["0","a",1]]})",
                                        R"({"masters":[[18446744073709551616,"a",1]]})",
                                        R"({"adam":[[4,0.9,)" + one + "," + one + ",1]]}",
                                        R"({"adam":[[4,)" + one + "," + one + R"(,"3ff000000000000",1]]})",
                                        R"({"adam":[[4,)" + one + "," + one + R"(,"3ff000000000000g",1]]})",
                                        R"({"adam":[[4,)" + one + "," + one + "," + one + ",1.5]]}",
                                        R"({"adam":[[4,)" + one + "," + one + "," + one + "]]}",
                                        R"({"adam":{}})",
                                        R"({"safetensors_header":1})",
                                        R"({"safetensors_header":null})",
                                        R"({"a":[[[[[[[[]]]]]]]]})",
                                        "{\"a\":\"\xff\"}"};
  for (const std::string& details : all) {
    const Bytes slot = made_of(plan.directory, details, room);
    const auto read = read_slot(slot, slot.size());
    ASSERT_FALSE(read.has_value()) << details;
    EXPECT_EQ(read.error().kind(), ErrorKind::corrupt) << details;
  }
  const Bytes slot = made_of(plan.directory, R"({"of a later version":[1]})", room);
  EXPECT_TRUE(read_slot(slot, slot.size()).has_value());
}

TEST_F(SlotLayoutTest, EnforcesTheLimitsOfTheReader) {
  const Slot slot = filled(state_);
  DecodeLimits limits;
  limits.tensors = 5;
  EXPECT_FALSE(read_slot(slot.bytes, slot.plan.bytes, limits).has_value());
}

// A slot changes while it is read: the reader must stay inside the slot. Torn reads are intended, so writer and reader
// use separate mappings, as two processes do.
TEST_F(SlotLayoutTest, SurvivesASlotThatChangesWhileItIsRead) {
  const Slot good = filled(state_);
  const auto memory = os::SharedMemory::create("bitsnap-test", good.bytes.size()).value();
  const os::MappedMemory writable = memory.map(os::MemoryAccess::read_write).value();
  const os::MappedMemory readable = memory.map(os::MemoryAccess::read).value();
  std::ranges::copy(good.bytes, writable.writable_bytes().begin());
  const ConstByteSpan slot = readable.bytes();
  std::atomic<bool> is_over = false;
  std::thread writer([&] {
    std::mt19937_64 random(3);
    while (!is_over) {
      const std::size_t at = random() % good.plan.tensors_offset;
      volatile std::byte* const byte = writable.writable_bytes().data() + at;
      *byte = static_cast<std::byte>(random());
      *byte = good.bytes[at];
    }
  });
  for (int i = 0; i < 3000; ++i) expect_inside(slot, good.plan.bytes);
  is_over = true;
  writer.join();
  EXPECT_TRUE(read_slot(slot, good.plan.bytes).has_value());
}

}  // namespace
}  // namespace bitsnap::engine
