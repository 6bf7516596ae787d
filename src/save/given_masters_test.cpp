// Masters that the caller gives: which are rejected and with what message, when they help although bitsnap would find
// none, and what a wrong one costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "save/state_layout.hpp"
#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kMasterElements = kChunkElements + 1000;

// The upper halves of masters, as no framework rounds.
Bytes truncated(ConstByteSpan masters) {
  Bytes bytes;
  for (std::size_t i = 2; i < masters.size(); i += 4) bytes.insert(bytes.end(), {masters[i], masters[i + 1]});
  return bytes;
}

class GivenMasters : public testing::Test {
 protected:
  void add(std::string name, DType dtype, Bytes&& bytes) = delete;
  TensorSource& add(std::string name, DType dtype, const Bytes& bytes,
                    std::optional<MasterSlice> master = std::nullopt) {
    TensorSource tensor = source(std::move(name), dtype, {bytes.size() / element_size(dtype)}, bytes);
    tensor.master = std::move(master);
    state_.tensors.push_back(std::move(tensor));
    return state_.tensors.back();
  }

  void add_alias(std::string name, std::size_t of, std::optional<MasterSlice> master) {
    TensorSource tensor = state_.tensors[of];
    tensor.info.name = std::move(name);
    tensor.info.alias_of = of;
    tensor.master = std::move(master);
    state_.tensors.push_back(std::move(tensor));
  }

  std::shared_ptr<const Snapshot> written(const SaveOptions& options = {}) {
    auto result = write_state(state_, options);
    EXPECT_TRUE(result.has_value()) << result.error().message();
    auto snapshot = open_file("a.bsnap", std::move(result->file));
    EXPECT_TRUE(snapshot->verify().value().empty());
    for (const TensorSource& tensor : state_.tensors) {
      if (tensor.data == nullptr) continue;
      const Bytes expected(tensor.data, tensor.data + tensor.info.size_bytes);
      EXPECT_EQ(read_tensor(*snapshot, tensor.info.name), expected) << tensor.info.name;
    }
    return snapshot;
  }

  std::string refusal() {
    const auto result = write_state(state_, {});
    EXPECT_FALSE(result.has_value());
    if (result) return {};
    EXPECT_EQ(result.error().kind(), ErrorKind::invalid_argument);
    return result.error().message();
  }

  // The masters that are used, by stream.
  std::vector<std::optional<PeerStream>> laid_out() {
    const container::Content content = lay_out(state_).value();
    return lay_out_masters(state_, content, container::derive_streams(content).value()).value();
  }

  static bool is_rounded(const Snapshot& snapshot, std::string_view name) {
    return codecs_of(snapshot, name) == std::set<std::string>{"rounded_from"};
  }

  State state_;
  const Bytes master_ = f32_masters(kMasterElements, 1);
  const Bytes weight_ = rounded(master_);
};

using Peers = std::vector<std::optional<PeerStream>>;

TEST_F(GivenMasters, RejectAMissingMaster) {
  add("w", DType::bf16, weight_, MasterSlice{"mister"});
  add("master", DType::f32, master_);
  EXPECT_EQ(refusal(), "tensor 'w': its master 'mister' is not in the state");
}

TEST_F(GivenMasters, RejectAMasterThatIsNotF32) {
  add("v", DType::bf16, weight_);
  add("w", DType::bf16, weight_, MasterSlice{"v"});
  EXPECT_EQ(refusal(), "tensor 'w': its master 'v' must be F32, got BF16");
  state_.tensors[1].master = MasterSlice{"w"};
  EXPECT_EQ(refusal(), "tensor 'w': its master 'w' must be F32, got BF16");
  state_.tensors[0].info.dtype = DType::i16;
  state_.tensors[0].info.dtype_name = "I16";
  state_.tensors[1].master = MasterSlice{"v"};
  EXPECT_EQ(refusal(), "tensor 'w': its master 'v' must be F32, got I16");
}

TEST_F(GivenMasters, RejectAWeightThatIsNeitherBf16NorF16) {
  add("w", DType::f32, master_, MasterSlice{"master"});
  add("master", DType::f32, master_);
  EXPECT_EQ(refusal(), "tensor 'w': a tensor with a master ('master') must be BF16 or F16, got F32");
  state_.tensors[0].info.dtype = DType::i32;
  state_.tensors[0].info.dtype_name = "I32";
  EXPECT_EQ(refusal(), "tensor 'w': a tensor with a master ('master') must be BF16 or F16, got I32");
}

TEST_F(GivenMasters, RejectARangeThatExceedsTheMaster) {
  add("w", DType::bf16, weight_, MasterSlice{"master", 1});
  add("master", DType::f32, master_);
  EXPECT_EQ(refusal(), "tensor 'w': 263144 elements from element 1 exceed its master 'master' of 263144 elements");
  for (const std::uint64_t element :
       {std::uint64_t{kMasterElements} + 1, UINT64_MAX, UINT64_MAX - kMasterElements + 1}) {
    state_.tensors[0].master->element = element;
    EXPECT_NE(refusal().find("from element " + std::to_string(element) + " exceed"), std::string::npos);
  }
  state_.tensors[0].master->element = 0;
  EXPECT_EQ(laid_out(), (Peers{PeerStream{1, 0}, {}}));
}

TEST_F(GivenMasters, RejectDifferentMastersOfTiedWeights) {
  const Bytes flat = f32_masters(kMasterElements + 5, 2);
  add("embed", DType::bf16, weight_, MasterSlice{"master", 0});
  add_alias("head", 0, MasterSlice{"flat", 3});
  add("master", DType::f32, master_);
  add("flat", DType::f32, flat);
  EXPECT_EQ(refusal(),
            "tensor 'embed' has the master 'master' from element 0, but tensor 'head' has the master 'flat' from "
            "element 3; tensors that share their bytes must have the same master");
  state_.tensors[0].master = MasterSlice{"flat", 4};
  EXPECT_NE(refusal().find("'flat' from element 4, but tensor 'head'"), std::string::npos);
  state_.tensors[0].master = state_.tensors[1].master = MasterSlice{"master", 0};
  EXPECT_EQ(laid_out(), (Peers{PeerStream{1, 0}, {}, {}}));
  state_.tensors[0].master.reset();
  EXPECT_EQ(laid_out(), (Peers{PeerStream{1, 0}, {}, {}})) << "a master of one alias counts for all";
  EXPECT_TRUE(is_rounded(*written(), "embed"));
}

TEST_F(GivenMasters, AcceptTheNameOfAnAlias) {
  add("master", DType::f32, master_);
  add_alias("shadow", 0, std::nullopt);
  add("w", DType::bf16, weight_, MasterSlice{"shadow"});
  EXPECT_EQ(laid_out(), (Peers{{}, PeerStream{0, 0}}));
}

// The bytes of an alias are stored with the dtype of the first tensor.
TEST_F(GivenMasters, AreIgnoredIfTheBytesAreStoredAsAnotherDtype) {
  const auto call = [&](std::size_t tensor, DType dtype) {
    state_.tensors[tensor].info.dtype = dtype;
    state_.tensors[tensor].info.dtype_name = dtype_name(dtype);
  };
  add("bits", DType::i16, weight_);
  add_alias("w", 0, MasterSlice{"true"});
  call(1, DType::bf16);
  add("words", DType::i32, master_);
  add_alias("master", 2, std::nullopt);
  call(3, DType::f32);
  add("v", DType::bf16, weight_, MasterSlice{"master"});
  add("true", DType::f32, master_);
  EXPECT_EQ(laid_out(), Peers(4));
  const auto snapshot = written();
  EXPECT_FALSE(is_rounded(*snapshot, "bits"));
  EXPECT_TRUE(is_rounded(*snapshot, "v")) << "an unusable master counts as none";
}

TEST_F(GivenMasters, AreOnlyCheckedForPooledAndEmptyTensors) {
  const Bytes small_master = f32_masters(100, 3);
  const Bytes small = rounded(small_master);
  const Bytes none;
  add("norm", DType::bf16, small, MasterSlice{"master.norm"});
  add("master.norm", DType::f32, small_master);
  add("empty", DType::bf16, none, MasterSlice{"master.norm", 100});
  EXPECT_EQ(laid_out(), Peers(1));
  written();
  state_.tensors[0].master->element = 1;
  EXPECT_EQ(refusal(), "tensor 'norm': 100 elements from element 1 exceed its master 'master.norm' of 100 elements");
}

// One weight in 8 is no rounding, so no sample matches the master; and no name does.
TEST_F(GivenMasters, AreUsedWhereNoneWouldBeFound) {
  Bytes near = weight_;
  for (std::size_t i = 0; i < near.size(); i += 16) near[i] ^= std::byte{1};
  const Bytes flat = [&] {
    Bytes bytes = f32_masters(1234, 9);
    bytes.insert(bytes.end(), master_.begin(), master_.end());
    return bytes;
  }();
  add("w", DType::bf16, near);
  add("flat", DType::f32, flat);
  const auto found = written({.settings = {.objective = Objective::ratio}});
  state_.tensors[0].master = MasterSlice{"flat", 1234};
  const auto given = written({.settings = {.objective = Objective::ratio}});
  EXPECT_FALSE(is_rounded(*found, "w"));
  EXPECT_TRUE(is_rounded(*given, "w"));
  EXPECT_LT(stored_bytes(*given, "w"), stored_bytes(*found, "w") / 4);
}

// bitsnap does not search them itself.
TEST_F(GivenMasters, MayBeSmallSlicesOfFlatBuffers) {
  constexpr std::size_t kSmall = 3000;
  const Bytes slice = rounded(ConstByteSpan(master_).subspan(4 * (kChunkElements - 77), 4 * kSmall).first(4 * 1000));
  const Bytes small = rounded(ConstByteSpan(master_).subspan(4 * (kChunkElements - kSmall / 2), 4 * (kSmall - 600)));
  add("on both sides of a chunk's end", DType::bf16, small, MasterSlice{"flat", kChunkElements - kSmall / 2});
  add("pooled", DType::bf16, slice, MasterSlice{"flat", kChunkElements - 77});
  add("flat", DType::f32, master_);
  const auto snapshot = written();
  EXPECT_TRUE(is_rounded(*snapshot, "on both sides of a chunk's end"));
  EXPECT_EQ(stored_bytes(*snapshot, "on both sides of a chunk's end"), 1U);
}

TEST_F(GivenMasters, NeedNoSamples) {
  const Bytes flat = [&] {
    Bytes bytes = f32_masters(77, 9);
    bytes.insert(bytes.end(), master_.begin(), master_.end());
    return bytes;
  }();
  add("w", DType::bf16, weight_, MasterSlice{"flat", 77});
  add("flat", DType::f32, flat);
  for (const bool brings_all : {false, true}) {
    for (TensorSource& tensor : state_.tensors) {
      const Bytes& bytes = tensor.info.dtype == DType::f32 ? flat : weight_;
      tensor.data = nullptr;
      tensor.read_brings_all = brings_all;
      tensor.read = [&bytes](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
        EXPECT_GE(out.size(), 2000U) << "a sample was read";
        std::memcpy(out.data(), bytes.data() + offset, out.size());
        return {};
      };
    }
    const auto snapshot = written();
    EXPECT_TRUE(is_rounded(*snapshot, "w"));
    EXPECT_EQ(read_tensor(*snapshot, "w"), weight_);
  }
}

TEST_F(GivenMasters, ThatAreWrongCostAsMuchAsNoneAndAreNotReplaced) {
  const Bytes other = f32_masters(kMasterElements, 5);
  const Bytes zeros(4 * kMasterElements);
  add("w", DType::bf16, weight_);
  add("other", DType::f32, other);
  add("zeros", DType::f32, zeros);
  const auto alone = written({.settings = {.objective = Objective::ratio}});
  add("true", DType::f32, master_);
  ASSERT_TRUE(is_rounded(*written(), "w"));
  for (const char* const wrong : {"other", "zeros"}) {
    state_.tensors[0].master = MasterSlice{wrong};
    const auto snapshot = written({.settings = {.objective = Objective::ratio}});
    EXPECT_FALSE(is_rounded(*snapshot, "w")) << wrong;
    EXPECT_EQ(stored_bytes(*snapshot, "w"), stored_bytes(*alone, "w")) << wrong;
  }
}

TEST_F(GivenMasters, ThatAreShiftedByOneElementAreLossless) {
  Bytes flat = f32_masters(10, 6);
  flat.insert(flat.end(), master_.begin(), master_.end());
  const Bytes padding(4 * 10);
  flat.insert(flat.end(), padding.begin(), padding.end());
  add("w", DType::bf16, weight_);
  add("flat", DType::f32, flat);
  for (const std::uint64_t element : {9U, 10U, 11U, 20U}) {
    state_.tensors[0].master = MasterSlice{"flat", element};
    EXPECT_EQ(is_rounded(*written(), "w"), element == 10) << element;
  }
}

// All tensors have the same given master, and most are no roundings of it. Some saves force a codec with a peer.
TEST_F(GivenMasters, AreLosslessWhateverTheyAre) {
  const Bytes cut_off = truncated(master_);
  const Bytes noise = random_bytes(weight_.size(), 7);
  const Bytes zeros(weight_.size());
  add("a", DType::bf16, weight_, MasterSlice{"master"});
  add("b", DType::bf16, noise, MasterSlice{"master"});
  add("c", DType::f16, weight_, MasterSlice{"master"});
  add("master", DType::f32, master_);
  add("d", DType::bf16, cut_off, MasterSlice{"master"});
  add("e", DType::f16, noise, MasterSlice{"master"});
  add("f", DType::bf16, zeros, MasterSlice{"master"});
  written();
  for (const char* const codec : {"rounded_from", "ordinal_delta"}) written({.settings = {.codec = codec}});
  for (const Policy policy : {Policy::raw, Policy::lmc, Policy::bitsnap}) written({.settings = {.policy = policy}});
  expect_same_bytes_for_any_threads(state_);
}

TEST_F(GivenMasters, GiveTheSameFileAsFoundOnes) {
  add("w", DType::bf16, weight_);
  add("master", DType::f32, master_);
  const Bytes found = write_state(state_, {}).value().file;
  state_.tensors[0].master = MasterSlice{"master"};
  EXPECT_EQ(write_state(state_, {}).value().file, found);
}

// Neither bits nor names lead to the master. Unchanged chunks refer to the first file, until that is dropped.
TEST_F(GivenMasters, AreKeptWhenAFileIsRewritten) {
  const auto nearly_rounded = [](const Bytes& master) {
    Bytes bytes = rounded(master);
    for (std::size_t i = 0; i < bytes.size(); i += 16) bytes[i] ^= std::byte{1};
    return bytes;
  };
  Bytes moved = master_;
  for (std::size_t i = 0; i < 4 * kChunkElements; i += 4) moved[i + 2] ^= std::byte{1};
  const Bytes near = nearly_rounded(master_);
  const Bytes moved_near = nearly_rounded(moved);
  add("w", DType::bf16, near, MasterSlice{"optimizer.7"});
  add("optimizer.7", DType::f32, master_);
  Chain chain;
  const SnapshotId first = chain.save(state_, {.settings = {.objective = Objective::ratio}}).id();
  state_.tensors[0].data = moved_near.data();
  state_.tensors[1].data = moved.data();
  const Snapshot& second = chain.save(state_, {.settings = {.objective = Objective::ratio}});
  ASSERT_EQ(chunks_of(second, "w")[0].codec, "rounded_from");
  ASSERT_EQ(chunks_of(second, "w")[1].codec, "same");
  const auto written = rewrite(second, {first});
  ASSERT_TRUE(written.has_value()) << written.error().message();
  const auto alone = open_file("1.bsnap", written->file);
  EXPECT_TRUE(alone->bases().empty());
  EXPECT_TRUE(is_rounded(*alone, "w"));
  EXPECT_EQ(read_tensor(*alone, "w"), moved_near);
}

}  // namespace
}  // namespace bitsnap::save
