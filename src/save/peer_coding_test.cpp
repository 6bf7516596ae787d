// Weights that are stored as the roundings of their masters: in any order, in flat buffers, through chains and
// rewriting, and while somebody writes to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "codec/trained_like_testing.hpp"
#include "os/file_system_fake.hpp"
#include "restore/read_context.hpp"
#include "save/snapshot_rewriter.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kElements = kChunkElements * 2 + 1000;

Bytes masters(std::size_t elements, unsigned seed) {
  Bytes bytes(4 * elements);
  codec::fill_trained_like(DType::f32, bytes, seed);
  return bytes;
}

Bytes rounded(ConstByteSpan from) {
  Bytes bytes(from.size() / 2);
  for (std::size_t i = 0; 2 * i < bytes.size(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, from.data() + 4 * i, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const char*>(&bits) + 2, 2);
  }
  return bytes;
}

// As a step of the training moves them.
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

  static std::vector<ChunkInfo> chunks_of(const Snapshot& snapshot, std::string_view name) {
    const std::size_t stream = *snapshot.stream_of(*snapshot.find(name));
    std::vector<ChunkInfo> chunks;
    for (std::uint64_t i = 0; i < snapshot.streams()[stream].chunk_count(); ++i) {
      chunks.push_back(snapshot.chunk_info(stream, i).value());
    }
    return chunks;
  }

  static std::uint64_t stored_bytes(const Snapshot& snapshot, std::string_view name) {
    std::uint64_t bytes = 0;
    for (const ChunkInfo& chunk : chunks_of(snapshot, name)) bytes += chunk.stored_bytes;
    return bytes;
  }

  static void expect_all_rounded(const Snapshot& snapshot, std::string_view name) {
    for (const ChunkInfo& chunk : chunks_of(snapshot, name)) {
      EXPECT_EQ(chunk.codec, "rounded_from");
      EXPECT_EQ(chunk.stored_bytes, 1U);
    }
  }

  Bytes master_ = masters(kElements, 1);
  Bytes weight_ = rounded(master_);
};

TEST_F(PeerCoding, AWeightCostsAByteForEachChunkWhereverItStands) {
  for (const bool weight_first : {false, true}) {
    State state;
    if (!weight_first) state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
    state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
    if (weight_first) state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
    const WrittenFile written = write(state);
    const auto snapshot = open_file("a.bsnap", written.file);
    expect_all_rounded(*snapshot, "model.w");
    EXPECT_EQ(read_tensor(*snapshot, "model.w"), weight_);
    EXPECT_EQ(read_tensor(*snapshot, "master.w"), master_);
    EXPECT_EQ(written.summary.depth, 0U);
    EXPECT_TRUE(snapshot->verify().value().empty());
  }
}

TEST_F(PeerCoding, AWeightIsFoundInAFlatBufferAtAnyOffset) {
  constexpr std::size_t kBefore = 100'003;
  const Bytes before = masters(kBefore, 2);
  Bytes flat = before;
  flat.insert(flat.end(), master_.begin(), master_.end());
  State state;
  state.tensors.push_back(source("w", DType::bf16, {kElements / 8, 8}, weight_));
  state.tensors.push_back(source("flat", DType::f32, {flat.size() / 4}, flat));
  const auto snapshot = open_file("a.bsnap", write(state).file);
  expect_all_rounded(*snapshot, "w");
  EXPECT_EQ(read_tensor(*snapshot, "w"), weight_);
}

TEST_F(PeerCoding, TheBytesDoNotDependOnThreads) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  state.tensors.push_back(source("model.v", DType::bf16, {kElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  std::optional<Bytes> first;
  for (const unsigned threads : {1U, 2U, 5U}) {
    Bytes bytes = write(state, {.threads = threads}).file;
    if (!first)
      first = std::move(bytes);
    else
      EXPECT_EQ(bytes, *first) << threads << " threads";
  }
}

TEST_F(PeerCoding, WeightsFollowTheirMastersThroughAChain) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  Chain chain;
  chain.save(state);
  for (unsigned number = 1; number < 4; ++number) {
    step(master_, number);
    std::ranges::copy(rounded(master_), weight_.begin());
    const Snapshot& snapshot = chain.save(state);
    expect_all_rounded(snapshot, "model.w");
    const std::uint32_t depth = chunks_of(snapshot, "master.w")[0].depth;
    EXPECT_EQ(depth, number);
    EXPECT_EQ(chunks_of(snapshot, "model.w")[0].depth, depth) << "one more would be a step into another file";
    EXPECT_EQ(read_tensor(snapshot, "model.w"), weight_);
  }
}

TEST_F(PeerCoding, AWeightThatIsFoundInItsMasterLeavesTheBaseAlone) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
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

// A learning rate so small that no weight changes: to say that it is the same would lead to the file before.
TEST_F(PeerCoding, AnUnchangedWeightIsFoundInItsMasterAndNotInTheFileBefore) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
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

TEST_F(PeerCoding, ARangeOfAWeightNeedsTheSameRangeOfItsMasterAlone) {
  State state;
  state.tensors.push_back(source("other", DType::f32, {kElements}, master_));
  const Bytes own_master = masters(kElements, 7);
  const Bytes own_weight = rounded(own_master);
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, own_weight));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, own_master));
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

// Somebody writes to the master after it was stored and before it is looked at again.
TEST_F(PeerCoding, AMasterThatChangesMeanwhileIsNotReferredTo) {
  Bytes other = master_;
  for (std::size_t i = 0; i < other.size(); i += 4) other[i] ^= std::byte{1};
  State state;
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  state.tensors[0].data = nullptr;
  std::atomic<std::uint64_t> whole_reads = 0;
  state.tensors[0].read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    // Samples are small; of what is read to be coded, every second piece is the peer's.
    const bool again = out.size() > 64 && whole_reads++ % 2 == 1;
    std::memcpy(out.data(), (again ? other : master_).data() + offset, out.size());
    return {};
  };
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  const auto snapshot = open_file("a.bsnap", write(state, {.threads = 1}).file);
  EXPECT_GT(whole_reads, 4U);
  for (const ChunkInfo& chunk : chunks_of(*snapshot, "model.w")) EXPECT_NE(chunk.codec, "rounded_from");
  EXPECT_EQ(read_tensor(*snapshot, "model.w"), weight_);
  EXPECT_TRUE(snapshot->verify().value().empty());
}

TEST_F(PeerCoding, WeightsThatAreAlmostTheirRoundingsCostTheirExceptions) {
  for (std::size_t i = 0; i < weight_.size(); i += 20'000) weight_[i] ^= std::byte{1};
  State state;
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  const auto snapshot = open_file("a.bsnap", write(state).file);
  EXPECT_LT(stored_bytes(*snapshot, "model.w"), weight_.size() / 1000);
  EXPECT_EQ(read_tensor(*snapshot, "model.w"), weight_);
}

TEST_F(PeerCoding, ARewrittenFileKeepsWhatWasRounded) {
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  Chain chain;
  const SnapshotId first = chain.save(state).id();
  step(master_, 1);
  std::ranges::copy(rounded(master_), weight_.begin());
  const Snapshot& second = chain.save(state);
  os::FakeFileSystem files;
  const auto file = files.create("/rewritten").value();
  const auto executor = exec::make_executor(2);
  const auto rewritten = rewrite_snapshot(second, {&first, 1}, nullptr, {}, *file, *executor);
  ASSERT_TRUE(rewritten.has_value()) << rewritten.error().message();
  ASSERT_TRUE(file->close());
  const auto alone = open_file("1.bsnap", os::read_file(files, "/rewritten", UINT64_MAX).value());
  EXPECT_EQ(alone->id(), second.id());
  expect_all_rounded(*alone, "model.w");
  EXPECT_EQ(chunks_of(*alone, "model.w")[0].depth, 0U);
  EXPECT_EQ(read_tensor(*alone, "model.w"), weight_);
}

TEST_F(PeerCoding, OtherPoliciesDoWithoutPeers) {
  State state;
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, master_));
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, weight_));
  for (const Policy policy : {Policy::raw, Policy::lmc, Policy::bitsnap}) {
    const auto snapshot = open_file("a.bsnap", write(state, {.settings = {.policy = policy}}).file);
    for (const ChunkInfo& chunk : chunks_of(*snapshot, "model.w")) EXPECT_NE(chunk.codec, "rounded_from");
  }
}

}  // namespace
}  // namespace bitsnap::save
