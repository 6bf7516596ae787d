// A save on trial takes what a save takes, chunk by chunk, alone and against a base.
#include "save/trial_encoding.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

struct Trained {
  Bytes master = f32_masters(kChunkElements + 5000, 3);
  Bytes weight = rounded(master);
  Bytes frozen = f32_masters(40'000, 4);
  Bytes small = random_bytes(100, 5);

  [[nodiscard]] State state() const {
    State state;
    state.tensors.push_back(source("w.weight", DType::bf16, {weight.size() / 2}, weight));
    state.tensors.push_back(source("w.master", DType::f32, {master.size() / 4}, master));
    state.tensors.push_back(source("frozen", DType::f32, {frozen.size() / 4}, frozen));
    state.tensors.push_back(source("small", DType::u8, {small.size()}, small));
    return state;
  }
  [[nodiscard]] std::shared_ptr<const State> shared() const { return std::make_shared<const State>(state()); }
};

std::vector<std::size_t> all_chunks(const TrialState& state) {
  std::vector<std::size_t> numbers(static_cast<std::size_t>(state.table().first_chunk.back()));
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

void expect_like_file(const TrialSizes& sizes, const TrialState& state, const Snapshot& written) {
  std::size_t number = 0;
  std::uint64_t payloads = 0;
  for (std::size_t stream = 0; stream < state.streams().size(); ++stream) {
    for (std::uint64_t chunk = 0; chunk < state.streams()[stream].chunk_count(); ++chunk, ++number) {
      EXPECT_EQ(sizes.chunks[number].stored_bytes, written.chunk_info(stream, chunk)->stored_bytes) << stream;
      EXPECT_EQ(sizes.chunks[number].raw_bytes, written.chunk_info(stream, chunk)->raw_bytes);
      payloads += sizes.chunks[number].stored_bytes;
    }
  }
  EXPECT_NEAR(static_cast<double>(sizes.table_bytes), static_cast<double>(written.file_bytes() - payloads), 400);
}

TEST(TrialEncoding, TakesWhatASaveTakes) {
  Trained trained;
  Chain chain;
  const auto executor = exec::make_executor(2);
  chain.save(trained.state());
  const auto first = TrialState::make("first", trained.shared(), {}, 0, *executor).value();
  expect_like_file(encode_on_trial(*first, all_chunks(*first), {}, *executor).value(), *first, *chain.last());

  Trained later = trained;
  change(later.master, 9, 3);
  later.weight = rounded(later.master);
  chain.save(later.state());
  const auto second = TrialState::make("second", later.shared(), {}, 0, *executor).value();
  const TrialSizes sizes = encode_on_trial(*second, all_chunks(*second), {.base = first}, *executor).value();
  expect_like_file(sizes, *second, *chain.last());
  const std::size_t frozen = static_cast<std::size_t>(second->table().first_chunk[*second->stream_of(2)]);
  EXPECT_TRUE(sizes.chunks[frozen].is_same);
  EXPECT_EQ(sizes.chunks[frozen].stored_bytes, 0U);
}

TEST(TrialEncoding, ReadsOnlyTheChunksThatItIsAskedFor) {
  const Trained trained;
  const auto executor = exec::make_executor(1);
  const auto state = TrialState::make("state", trained.shared(), {}, 0, *executor).value();
  const std::size_t frozen = static_cast<std::size_t>(state->table().first_chunk[*state->stream_of(2)]);
  const TrialSizes sizes = encode_on_trial(*state, std::vector{frozen}, {}, *executor).value();
  EXPECT_EQ(sizes.chunks.size(), 1U);
  EXPECT_LT(state->read_bytes(), trained.frozen.size() + 20'000);
  EXPECT_GE(state->read_bytes(), trained.frozen.size());
}

TEST(TrialEncoding, NamesTheStateInErrors) {
  auto state = std::make_shared<State>();
  const Bytes bytes = random_bytes(160'000, 1);
  TensorSource& tensor = state->tensors.emplace_back(source("t", DType::f32, {40'000}, bytes));
  tensor.data = nullptr;
  tensor.read = [](std::uint64_t, std::span<std::byte>) -> Result<void> { return fail(ErrorKind::io, "no disk"); };
  const auto executor = exec::make_executor(1);
  const auto made = TrialState::make("checkpoint-7", state, {}, 0, *executor).value();
  const auto sizes = encode_on_trial(*made, std::vector<std::size_t>{0}, {}, *executor);
  ASSERT_FALSE(sizes);
  EXPECT_EQ(sizes.error().kind(), ErrorKind::io);
  EXPECT_NE(sizes.error().message().find("checkpoint-7"), std::string::npos);
}

}  // namespace
}  // namespace bitsnap::save
