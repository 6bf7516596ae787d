// Weights that are coded against their masters: in any order, in flat buffers, in chains, when a file is rewritten, and
// while another thread writes to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "restore/read_context.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kPeerElements = kChunkElements * 2 + 1000;

// Changes masters about as much as a training step.
void step(Bytes& bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    std::uint32_t bits;
    std::memcpy(&bits, bytes.data() + i, sizeof bits);
    bits += (static_cast<std::uint32_t>(i) * 2654435761U + seed) >> 20;
    std::memcpy(bytes.data() + i, &bits, sizeof bits);
  }
}

class PeerCoding : public testing::Test {
 protected:
  static WrittenFile write(const State& state, const SaveOptions& options = {}) {
    auto written = write_state(state, options);
    EXPECT_TRUE(written.has_value()) << written.error().message();
    return std::move(written).value();
  }

  static void expect_all_rounded(const Snapshot& snapshot, std::string_view name) {
    for (const ChunkInfo& chunk : chunks_of(snapshot, name)) {
      EXPECT_EQ(chunk.codec, "rounded_from");
      EXPECT_EQ(chunk.stored_bytes, 1U);
    }
  }

  Bytes master_ = f32_masters(kPeerElements, 1);
  Bytes weight_ = rounded(master_);
};

TEST_F(PeerCoding, AWeightTakesOneBytePerChunkInAnyOrderOfTensors) {
  for (const bool weight_first : {false, true}) {
    State state;
    if (!weight_first) state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
    state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
    if (weight_first) state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
    const WrittenFile written = write(state);
    const auto snapshot = open_file("a.bsnap", written.file);
    expect_all_rounded(*snapshot, "model.w");
    EXPECT_EQ(read_tensor(*snapshot, "model.w"), weight_);
    EXPECT_EQ(read_tensor(*snapshot, "master.w"), master_);
    EXPECT_EQ(written.summary.depth, 0U);
    EXPECT_TRUE(snapshot->verify().value().empty());
  }
}

TEST_F(PeerCoding, FindsAWeightInAFlatBufferAtAnyOffset) {
  constexpr std::size_t kBefore = 100'003;
  const Bytes before = f32_masters(kBefore, 2);
  Bytes flat = before;
  flat.insert(flat.end(), master_.begin(), master_.end());
  State state;
  state.tensors.push_back(source("w", DType::bf16, {kPeerElements / 8, 8}, weight_));
  state.tensors.push_back(source("flat", DType::f32, {flat.size() / 4}, flat));
  const auto snapshot = open_file("a.bsnap", write(state).file);
  expect_all_rounded(*snapshot, "w");
  EXPECT_EQ(read_tensor(*snapshot, "w"), weight_);
}

TEST_F(PeerCoding, GivesTheSameBytesForAnyNumberOfThreads) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  state.tensors.push_back(source("model.v", DType::bf16, {kPeerElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  expect_same_bytes_for_any_threads(state);
}

TEST_F(PeerCoding, CodesWeightsAgainstMastersThroughAChain) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  Chain chain;
  chain.save(state);
  for (unsigned number = 1; number < 4; ++number) {
    step(master_, number);
    std::ranges::copy(rounded(master_), weight_.begin());
    const Snapshot& snapshot = chain.save(state);
    expect_all_rounded(snapshot, "model.w");
    const std::uint32_t depth = chunks_of(snapshot, "master.w")[0].depth;
    EXPECT_EQ(depth, number);
    EXPECT_EQ(chunks_of(snapshot, "model.w")[0].depth, depth) << "a weight adds no link";
    EXPECT_EQ(read_tensor(snapshot, "model.w"), weight_);
  }
}

TEST_F(PeerCoding, DoesNotReadTheBaseOfAWeightWithAMaster) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  const auto log = std::make_shared<container::ReadLog>();
  const auto base = open_file("a.bsnap", write(state).file, nullptr, log);
  log->clear();
  step(master_, 1);
  std::ranges::copy(rounded(master_), weight_.begin());
  SingleBase bases(base);
  MemoryBase tap;
  const auto written = write_state(state, {}, &bases, &tap);
  ASSERT_TRUE(written.has_value()) << written.error().message();
  EXPECT_EQ(log->reads().size(), chunks_of(*base, "master.w").size());
  EXPECT_EQ(tap.chunks_taken(), 2 * chunks_of(*base, "master.w").size());
  EXPECT_EQ(tap.stream_bytes(0), weight_);
}

// With a tiny learning rate no weight changes. A reference to the base would make the file depend on it.
TEST_F(PeerCoding, CodesAnUnchangedWeightAgainstItsMasterNotItsBase) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  Chain chain;
  chain.save(state);
  for (std::size_t i = 0; i < master_.size(); i += 4) {
    const bool is_near_half_way = master_[i + 1] == std::byte{0x7f} || master_[i + 1] == std::byte{0x80};
    if (!is_near_half_way) master_[i] ^= std::byte{1};
  }
  const Bytes before = weight_;
  std::ranges::copy(rounded(master_), weight_.begin());
  ASSERT_EQ(weight_, before);
  const Snapshot& alone = chain.save(state, {.settings = {.max_depth = 0}});
  expect_all_rounded(alone, "model.w");
  EXPECT_TRUE(alone.bases().empty());
}

TEST_F(PeerCoding, ReadingARangeOfAWeightReadsOnlyThatRangeOfItsMaster) {
  State state;
  state.tensors.push_back(source("other", DType::f32, {kPeerElements}, master_));
  const Bytes own_master = f32_masters(kPeerElements, 7);
  const Bytes own_weight = rounded(own_master);
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, own_weight));
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, own_master));
  const auto log = std::make_shared<container::ReadLog>();
  const auto snapshot = open_file("a.bsnap", write(state).file, nullptr, log);
  const std::uint64_t master_chunk = chunks_of(*snapshot, "master.w")[1].stored_bytes;
  log->clear();
  Bytes range(200);
  ReadContext context;
  ASSERT_TRUE(
      snapshot->read_elements(*snapshot->stream_of(*snapshot->find("model.w")), kChunkElements + 5, range, context));
  EXPECT_TRUE(std::equal(range.begin(), range.end(), own_weight.begin() + 2 * (kChunkElements + 5)));
  std::uint64_t read = 0;
  for (const auto& [offset, size] : log->reads()) read += size;
  EXPECT_EQ(read, master_chunk + 1);
}

// The master changes after it was stored and before it is read again for its weight.
TEST_F(PeerCoding, DoesNotReferToAMasterThatChangesDuringTheSave) {
  Bytes other = master_;
  for (std::size_t i = 0; i < other.size(); i += 4) other[i] ^= std::byte{1};
  State state;
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  state.tensors[0].data = nullptr;
  std::atomic<std::uint64_t> whole_reads = 0;
  state.tensors[0].read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    // Samples are small. Of the larger reads, every second one is for the weight.
    const bool again = out.size() > 64 && whole_reads++ % 2 == 1;
    std::memcpy(out.data(), (again ? other : master_).data() + offset, out.size());
    return {};
  };
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  const auto snapshot = open_file("a.bsnap", write(state, {.threads = 1}).file);
  EXPECT_GT(whole_reads, 4U);
  for (const ChunkInfo& chunk : chunks_of(*snapshot, "model.w")) EXPECT_NE(chunk.codec, "rounded_from");
  EXPECT_EQ(read_tensor(*snapshot, "model.w"), weight_);
  EXPECT_TRUE(snapshot->verify().value().empty());
}

TEST_F(PeerCoding, StoresTheFewExceptionsOfANearlyRoundedWeight) {
  for (std::size_t i = 0; i < weight_.size(); i += 20'000) weight_[i] ^= std::byte{1};
  State state;
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  const auto snapshot = open_file("a.bsnap", write(state).file);
  EXPECT_LT(stored_bytes(*snapshot, "model.w"), weight_.size() / 1000);
  EXPECT_EQ(read_tensor(*snapshot, "model.w"), weight_);
}

TEST_F(PeerCoding, KeepsRoundedWeightsWhenAFileIsRewritten) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  Chain chain;
  const SnapshotId first = chain.save(state).id();
  step(master_, 1);
  std::ranges::copy(rounded(master_), weight_.begin());
  const Snapshot& second = chain.save(state);
  const auto written = rewrite(second, {first});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto alone = open_file("1.bsnap", written->file);
  EXPECT_EQ(alone->id(), second.id());
  expect_all_rounded(*alone, "model.w");
  EXPECT_EQ(chunks_of(*alone, "model.w")[0].depth, 0U);
  EXPECT_EQ(read_tensor(*alone, "model.w"), weight_);
}

TEST_F(PeerCoding, OtherPoliciesUseNoPeers) {
  State state;
  state.tensors.push_back(source("master.w", DType::f32, {kPeerElements}, master_));
  state.tensors.push_back(source("model.w", DType::bf16, {kPeerElements}, weight_));
  for (const Policy policy : {Policy::raw, Policy::lmc, Policy::bitsnap}) {
    const auto snapshot = open_file("a.bsnap", write(state, {.settings = {.policy = policy}}).file);
    for (const ChunkInfo& chunk : chunks_of(*snapshot, "model.w")) EXPECT_NE(chunk.codec, "rounded_from");
  }
}

}  // namespace
}  // namespace bitsnap::save
