// Finding masters: by bits, by names if bits are not enough, and in flat buffers.
#include "save/peer_finder.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "save/state_layout.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kFinderElements = 5000;
constexpr std::size_t kInFlat = kChunkElements / 4;  // the smallest slice that is searched

// Every third weight is one higher than rounding to nearest gives.
Bytes rounded_up(ConstByteSpan masters) {
  Bytes bytes = rounded(masters);
  for (std::size_t i = 0; i < bytes.size(); i += 6) {
    store_le(bytes.data() + i, static_cast<std::uint16_t>(load_le<std::uint16_t>(bytes.data() + i) + 1));
  }
  return bytes;
}

Bytes joined(std::initializer_list<ConstByteSpan> parts) {
  Bytes bytes;
  for (const ConstByteSpan part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  return bytes;
}

class PeerFinder : public testing::Test {
 protected:
  // The bytes must outlive the state.
  void add(std::string name, DType dtype, Bytes&& bytes, std::vector<std::uint64_t> shape = {}) = delete;
  // The numbers of streams are those of tensors: all are too large for the pool.
  void add(std::string name, DType dtype, const Bytes& bytes, std::vector<std::uint64_t> shape = {}) {
    if (shape.empty()) shape = {bytes.size() / element_size(dtype)};
    state_.tensors.push_back(source(std::move(name), dtype, std::move(shape), bytes));
  }

  std::vector<std::optional<PeerStream>> found() {
    const container::Content content = lay_out(state_).value();
    const container::StreamTable streams = container::derive_streams(content).value();
    return find_peers(content, streams, StreamReader(state_, content, streams), given_);
  }

  State state_;
  std::vector<std::optional<PeerStream>> given_;  // empty: none
};

using Peers = std::vector<std::optional<PeerStream>>;

TEST_F(PeerFinder, FindsMastersByBitsNotNames) {
  const Bytes first = f32_masters(kFinderElements, 1);
  const Bytes second = f32_masters(kFinderElements, 2);
  const Bytes first_weight = rounded(first);
  const Bytes second_weight = rounded(second);
  add("a", DType::bf16, first_weight);
  add("b", DType::bf16, second_weight);
  add("optimizer.0.b", DType::f32, first);
  add("optimizer.0.a", DType::f32, second);
  EXPECT_EQ(found(), (Peers{PeerStream{2, 0}, PeerStream{3, 0}, {}, {}}));
}

TEST_F(PeerFinder, FindsNothingIfNoBitsMatch) {
  const Bytes master = f32_masters(kFinderElements, 1);
  const Bytes other = rounded(f32_masters(kFinderElements, 3));
  const Bytes shorter = rounded(ConstByteSpan(master).first(4 * (kFinderElements - 1)));
  add("w", DType::bf16, other);
  add("master.w", DType::f32, master);
  add("v", DType::bf16, other);
  EXPECT_EQ(found(), (Peers{{}, {}, {}}));
  state_.tensors.clear();
  const Bytes weight = rounded(master);
  add("w", DType::f16, weight);
  add("master.w", DType::f32, master);
  EXPECT_EQ(found(), (Peers{{}, {}})) << "rounded to BF16";
}

// Many tensors consist of zeros or ones when a training begins.
TEST_F(PeerFinder, LetsNamesDecideBetweenEqualMasters) {
  const Bytes ones = [] {
    Bytes bytes(4 * kFinderElements);
    for (std::size_t i = 0; i < bytes.size(); i += 4) std::memcpy(bytes.data() + i, "\x00\x00\x80\x3f", 4);
    return bytes;
  }();
  const Bytes weights = rounded(ones);
  add("model.layers.0.norm.weight", DType::bf16, weights);
  add("model.layers.1.norm.weight", DType::bf16, weights);
  add("optimizer.master.layers.0.norm.weight", DType::f32, ones);
  add("optimizer.exp_avg.layers.1.norm.weight", DType::f32, ones);
  add("optimizer.master.layers.1.norm.weight", DType::f32, ones);
  EXPECT_EQ(found(), (Peers{PeerStream{2, 0}, PeerStream{4, 0}, {}, {}, {}}));
}

TEST_F(PeerFinder, FindsTheMasterOfAStochasticallyRoundedWeightByName) {
  const Bytes first = f32_masters(kFinderElements, 1);
  const Bytes second = f32_masters(kFinderElements, 2);
  const Bytes weight = rounded_up(second);
  add("layers.1.weight", DType::bf16, weight);
  add("master.layers.0.weight", DType::f32, first);
  add("master.layers.1.weight", DType::f32, second);
  EXPECT_EQ(found(), (Peers{PeerStream{2, 0}, {}, {}}));
  state_.tensors.pop_back();
  add("something.else", DType::f32, second);
  EXPECT_EQ(found(), (Peers{{}, {}, {}})) << "neither bits nor names match";
}

TEST_F(PeerFinder, FindsSlicesOfFlatBuffersWithAndWithoutPadding) {
  const Bytes a = f32_masters(kInFlat, 1);
  const Bytes b = f32_masters(3 * kInFlat, 2);
  const Bytes c = f32_masters(kInFlat + 77, 3);
  const Bytes padding(4 * 51);
  const Bytes flat = joined({padding, b, a, padding, c});
  const Bytes weight_a = rounded(a);
  const Bytes weight_b = rounded(b);
  const Bytes weight_c = rounded(c);
  add("a", DType::bf16, weight_a, {kInFlat / 64, 64});
  add("b", DType::bf16, weight_b, {3 * kInFlat / 64, 64});
  add("c", DType::bf16, weight_c);
  add("optimizer.flat", DType::f32, flat);
  EXPECT_EQ(found(),
            (Peers{PeerStream{3, 51 + 3 * kInFlat}, PeerStream{3, 51}, PeerStream{3, 51 + 4 * kInFlat + 51}, {}}));
}

// A sample would copy the whole tensor from its device.
TEST_F(PeerFinder, TakesNoSamplesOfTensorsOnOtherDevices) {
  const Bytes master = f32_masters(kFinderElements, 1);
  const Bytes weight = rounded(master);
  add("model.layers.0.weight", DType::bf16, weight);
  add("model.layers.1.weight", DType::bf16, weight);
  add("optimizer.master.layers.1.weight", DType::f32, master);
  add("optimizer.exp_avg.layers.0.weight", DType::f32, master);
  add("optimizer.master.head.weight", DType::f32, master);
  for (TensorSource& tensor : state_.tensors) {
    tensor.data = nullptr;
    tensor.read_brings_all = true;
    tensor.read = [](std::uint64_t, std::span<std::byte>) -> Result<void> {
      ADD_FAILURE() << "a tensor was read";
      return {};
    };
  }
  EXPECT_EQ(found(), (Peers{{}, PeerStream{2, 0}, {}, {}, {}})) << "by names alone";
}

TEST_F(PeerFinder, FindsSlicesThatCrossTheEndOfAChunk) {
  for (const std::size_t before : {kChunkElements - 8, kChunkElements - 7, kChunkElements - 1, kChunkElements}) {
    const Bytes own = f32_masters(kInFlat, 1);
    const Bytes flat = joined({f32_masters(before, 2), own, f32_masters(1000, 3)});
    const Bytes weight = rounded(own);
    state_.tensors.clear();
    add("w", DType::bf16, weight);
    add("flat", DType::f32, flat);
    EXPECT_EQ(found(), (Peers{PeerStream{1, before}, {}})) << before;
  }
}

// Reading each of them would decode a chunk of the buffer.
TEST_F(PeerFinder, DoesNotSearchSmallWeightsInFlatBuffers) {
  const Bytes own = f32_masters(kInFlat - 1, 1);
  const Bytes flat = joined({own, f32_masters(kInFlat, 2)});
  const Bytes weight = rounded(own);
  add("w", DType::bf16, weight);
  add("flat", DType::f32, flat);
  EXPECT_EQ(found(), (Peers{{}, {}}));
}

// The weight begins with the pattern that fills the buffer. Its samples must not be compared everywhere.
TEST_F(PeerFinder, EndsTheSearchInARepeatedPattern) {
  Bytes flat(4 * 5 * kChunkElements);
  for (std::size_t i = 3; i < flat.size(); i += 8) flat[i] = std::byte{0x3f};
  Bytes own = f32_masters(kInFlat, 1);
  std::copy_n(flat.begin(), 4 * 16, own.begin());
  const Bytes weight = rounded(own);
  add("w", DType::bf16, weight);
  add("flat", DType::f32, flat);
  std::size_t reads = 0;
  state_.tensors[1].data = nullptr;
  state_.tensors[1].read = [&](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
    ++reads;
    std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  };
  EXPECT_EQ(found(), (Peers{{}, {}}));
  EXPECT_LT(reads, 5000U);
}

TEST_F(PeerFinder, KeepsGivenMastersAndSearchesOtherWeights) {
  const Bytes master = f32_masters(kFinderElements, 1);
  const Bytes weight = rounded(master);
  const Bytes unlike = f32_masters(kFinderElements, 2);
  add("v", DType::bf16, weight);
  add("w", DType::bf16, weight);
  add("master", DType::f32, master);
  add("unlike", DType::f32, unlike);
  given_ = {PeerStream{3, 0}, {}, {}, {}};
  EXPECT_EQ(found(), (Peers{PeerStream{3, 0}, PeerStream{2, 0}, {}, {}}));
}

TEST_F(PeerFinder, SkipsWeightsThatCannotBeRead) {
  const Bytes master = f32_masters(kFinderElements, 1);
  add("master", DType::f32, master);
  TensorSource broken;
  broken.info = state_.tensors[0].info;
  broken.info.name = "w";
  broken.info.dtype = DType::bf16;
  broken.info.dtype_name = "BF16";
  broken.info.size_bytes = 2 * kFinderElements;
  broken.read = [](std::uint64_t, std::span<std::byte>) -> Result<void> { return fail(ErrorKind::io, "no"); };
  state_.tensors.push_back(std::move(broken));
  EXPECT_EQ(found(), (Peers{{}, {}}));
}

}  // namespace
}  // namespace bitsnap::save
