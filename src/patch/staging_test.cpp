// What is refused, and that nothing has changed then; staged patches, and several in one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <bitsnap/patch.hpp>

#include "patch/weights_testing.hpp"

namespace bitsnap::patch {
namespace {

class StagingTest : public testing::Test {
 protected:
  StagingTest() {
    base_ = {bf16_tensor("a", 5'000, 1), random_tensor("b", DType::f32, 300'000, 2), bf16_tensor("same", 1'000, 3)};
    weights_ = base_;
    step_bf16(weights_[0], 1e-5, 1);
    change_some(weights_[1], 1'000, 2);
    patch_ = patch_of(weights_, base_, {.from = "41", .to = "42"});
  }

  // The error of applying to these weights, which must not change.
  Error refusal(const OwnWeights& to, const Bytes& patch, const StageOptions& options = {}) {
    OwnWeights own = to;
    const auto applied = apply_patch(memory_of(own), patch, options);
    EXPECT_TRUE(same_bytes(own, to)) << "weights changed";
    if (!applied) return applied.error();
    ADD_FAILURE() << "applied";
    return Error(ErrorKind::internal, "applied");
  }

  static PatchState state_of(const OwnWeights& weights, const Bytes& patch) {
    OwnWeights own = weights;
    const auto state = Patch::open(patch)->state_of(memory_of(own));
    EXPECT_TRUE(state);
    return *state;
  }

  OwnWeights base_;
  OwnWeights weights_;
  Bytes patch_;
};

TEST_F(StagingTest, WrongWeightsAreRefusedAndNamed) {
  OwnWeights other = base_;
  other[1].bytes[123'456] ^= std::byte{4};
  const Error error = refusal(other, patch_);
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(error.code(), ErrorCode::wrong_base);
  EXPECT_NE(
      error.message().find("the weights are not what the patch from '41' to '42' applies to: tensor 'b', elements 0 to "
                           "299999 has hash"),
      std::string::npos)
      << error.message();
  EXPECT_EQ(state_of(other, patch_), PatchState::other);
}

TEST_F(StagingTest, WhatIsAppliedAlreadyIsRefused) {
  const Error error = refusal(weights_, patch_);
  EXPECT_EQ(error.code(), ErrorCode::wrong_base);
  EXPECT_EQ(error.message(), "the patch from '41' to '42' is applied already");
  EXPECT_EQ(state_of(weights_, patch_), PatchState::applied);
  EXPECT_EQ(state_of(base_, patch_), PatchState::applicable);
}

TEST_F(StagingTest, AnInterruptedApplicationIsNamed) {
  OwnWeights half = base_;
  half[0] = weights_[0];
  const Error error = refusal(half, patch_);
  EXPECT_EQ(error.code(), ErrorCode::wrong_base);
  EXPECT_NE(error.message().find("the patch from '41' to '42' was applied in part: 1 of 2 changed parts"),
            std::string::npos)
      << error.message();
  EXPECT_EQ(state_of(half, patch_), PatchState::partly);
}

TEST_F(StagingTest, MissingAndOtherTensorsAreRefused) {
  const Error missing = refusal({base_[1], base_[2]}, patch_);
  EXPECT_EQ(missing.kind(), ErrorKind::not_found);
  EXPECT_EQ(missing.message(), "tensor 'a' of the patch is missing in the weights");
  OwnWeights reshaped = base_;
  reshaped[0].shape = {50, 100};
  EXPECT_NE(refusal(reshaped, patch_)
                .message()
                .find("tensor 'a': the weights have BF16 [50, 100], the patch changes BF16 [5000]"),
            std::string::npos);
}

TEST_F(StagingTest, EveryFlippedBitAndEveryEndIsRefused) {
  OwnWeights small = {bf16_tensor("a", 500, 1), random_tensor("b", DType::i32, 40, 2)};
  OwnWeights next = small;
  step_bf16(next[0], 1e-5, 1);
  change_some(next[1], 5, 2);
  const Bytes patch = patch_of(next, small);
  for (std::size_t bit = 0; bit < 8 * patch.size(); ++bit) {
    Bytes broken = patch;
    broken[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const ErrorKind kind = refusal(small, broken).kind();
    EXPECT_TRUE(kind == ErrorKind::corrupt || kind == ErrorKind::unsupported || kind == ErrorKind::truncated) << bit;
  }
  for (std::size_t size = 0; size < patch.size(); ++size) {
    EXPECT_EQ(refusal(small, Bytes(patch.begin(), patch.begin() + static_cast<std::ptrdiff_t>(size))).kind(),
              ErrorKind::truncated);
  }
}

TEST_F(StagingTest, StagingWritesNothingAndGivesTheChanges) {
  OwnWeights own = base_;
  const auto patch = Patch::open(patch_);
  ASSERT_TRUE(patch);
  auto staged = patch->stage(memory_of(own));
  ASSERT_TRUE(staged) << staged.error().message();
  EXPECT_TRUE(same_bytes(own, base_));
  std::uint64_t changed = 0;
  for (const std::size_t t : {std::size_t{0}, std::size_t{1}}) {
    const auto changes = staged->changes(base_[t].name);
    ASSERT_TRUE(changes);
    const std::size_t bytes = element_size(base_[t].dtype);
    OwnTensor by_hand = base_[t];
    for (std::size_t i = 0; i < changes->places.size(); ++i) {
      EXPECT_TRUE(i == 0 || changes->places[i - 1] < changes->places[i]);
      std::memcpy(by_hand.bytes.data() + changes->places[i] * bytes, changes->values.data() + i * bytes, bytes);
    }
    EXPECT_EQ(by_hand.bytes, weights_[t].bytes);
    changed += changes->places.size();
  }
  EXPECT_EQ(staged->changed_elements(), changed);
  EXPECT_EQ(staged->changes("same").error().kind(), ErrorKind::not_found);
  staged->apply();
  EXPECT_TRUE(same_bytes(own, weights_));
}

TEST_F(StagingTest, VerifyingAllFindsWhatThePatchDoesNotTouch) {
  const StageOptions all{.threads = 0, .verify = Verify::all};
  EXPECT_EQ(refusal(base_, patch_, all).field(), "verify");  // made without the hashes
  const Bytes patch = patch_of(weights_, base_, {.hash_unchanged = true});
  OwnWeights other = base_;
  other[2].bytes[7] ^= std::byte{1};
  EXPECT_EQ(refusal(other, patch, all).code(), ErrorCode::wrong_base);
  OwnWeights more = base_;
  more.push_back(bf16_tensor("more", 1, 1));
  EXPECT_NE(refusal(more, patch, all).message().find("2 tensors beside those that the patch changes, its maker had 1"),
            std::string::npos);
  OwnWeights own = base_;
  ASSERT_TRUE(apply_patch(memory_of(own), patch, all));
  EXPECT_TRUE(same_bytes(own, weights_));
  ASSERT_TRUE(apply_patch(memory_of(other), patch));  // the tensor that nothing changes is not looked at
}

// A chain of steps that touch other tensors each, in slabs of other sizes.
class JoinedPatchesTest : public testing::Test {
 protected:
  JoinedPatchesTest() {
    versions_.push_back(
        {bf16_tensor("a", 700'000, 1), bf16_tensor("b", 1'000, 2), random_tensor("c", DType::i32, 500, 3)});
    for (std::uint32_t i = 0; i < 5; ++i) {
      OwnWeights next = versions_.back();
      if (i != 2) step_bf16(next[0], i == 3 ? 1e-3 : 1e-6, i);
      if (i % 2 == 0) step_bf16(next[1], 1e-5, i);
      if (i >= 2) change_some(next[2], 9, i);
      patches_.push_back(patch_of(next, versions_.back(), {.from = std::to_string(i), .to = std::to_string(i + 1)}));
      versions_.push_back(std::move(next));
    }
  }

  std::vector<OwnWeights> versions_;
  std::vector<Bytes> patches_;
};

TEST_F(JoinedPatchesTest, ApplyTogether) {
  Bytes joined;
  for (const Bytes& patch : patches_) joined.insert(joined.end(), patch.begin(), patch.end());
  OwnWeights own = versions_.front();
  const auto patch = Patch::open(joined);
  ASSERT_TRUE(patch);
  EXPECT_EQ(patch->from(), "0");
  EXPECT_EQ(patch->to(), "5");
  EXPECT_EQ(patch->tensors().size(), 3U);
  auto staged = patch->stage(memory_of(own));
  ASSERT_TRUE(staged) << staged.error().message();
  EXPECT_TRUE(same_bytes(own, versions_.front()));
  const auto changes = staged->changes("a");
  ASSERT_TRUE(changes);
  OwnTensor by_hand = versions_.front()[0];
  for (std::size_t i = 0; i < changes->places.size(); ++i) {
    std::memcpy(by_hand.bytes.data() + changes->places[i] * 2, changes->values.data() + i * 2, 2);
  }
  EXPECT_EQ(by_hand.bytes, versions_.back()[0].bytes);
  staged->apply();
  EXPECT_TRUE(same_bytes(own, versions_.back()));
}

TEST_F(JoinedPatchesTest, OfVersionsThatDoNotFollowEachOtherAreRefused) {
  Bytes joined = patches_[0];
  joined.insert(joined.end(), patches_[2].begin(), patches_[2].end());
  const auto patch = Patch::open(joined);
  ASSERT_FALSE(patch);
  EXPECT_EQ(patch.error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(patch.error().message(), "patch 2 applies to '2', but the one before makes '1': they are out of order");
}

TEST_F(JoinedPatchesTest, InAnotherOrderAreRefusedBeforeAnythingChanges) {
  Bytes joined = patch_of(versions_[1], versions_[0]);
  const Bytes later = patch_of(versions_[4], versions_[3]);
  joined.insert(joined.end(), later.begin(), later.end());
  OwnWeights own = versions_.front();
  const auto applied = apply_patch(memory_of(own), joined);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code(), ErrorCode::wrong_base);
  EXPECT_TRUE(same_bytes(own, versions_.front()));
}

TEST_F(JoinedPatchesTest, AreComparedWithNoWeights) {
  Bytes joined = patches_[0];
  joined.insert(joined.end(), patches_[1].begin(), patches_[1].end());
  OwnWeights own = versions_.front();
  EXPECT_EQ(Patch::open(joined)->state_of(memory_of(own)).error().kind(), ErrorKind::unsupported);
}

// Tensors that are tied in some patches and not in others, and that are memory of their own or not.
class TiedPatchesTest : public testing::Test {
 protected:
  static OwnTensor named(OwnTensor tensor, const char* name) {
    tensor.name = name;
    return tensor;
  }
  static OwnTensor stepped(OwnTensor tensor, std::uint32_t seed) {
    step_bf16(tensor, 1e-5, seed);
    return tensor;
  }
  // Weights 'a' and 'b' that are the same memory.
  static std::vector<WeightMemory> tied(OwnWeights& own) {
    std::vector<WeightMemory> memory = memory_of(own);
    memory.push_back(memory.front());
    memory.back().name = "b";
    return memory;
  }
  static Bytes tied_patch(OwnWeights to, OwnWeights from) {
    auto patch = make_patch(tied(to), tied(from));
    EXPECT_TRUE(patch);
    return *patch;
  }
  static Bytes join(Bytes first, const Bytes& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  OwnTensor old_ = bf16_tensor("a", 5'000, 1);
  OwnTensor new_ = stepped(old_, 2);
  OwnTensor newest_ = stepped(new_, 3);
};

TEST_F(TiedPatchesTest, ThatFollowAPatchOfOneOfThemAreRefused) {
  OwnWeights own = {old_, named(old_, "b")};
  OwnWeights one = {new_, named(old_, "b")};
  const Bytes patch = join(patch_of(one, own), tied_patch({newest_}, {new_}));
  const OwnWeights before = own;
  const auto applied = apply_patch(memory_of(own), patch);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().message(),
            "patch 2 of 2: tensor 'a' and tensor 'b' are tied in the patch, but differ here");
  EXPECT_TRUE(same_bytes(own, before));
}

TEST_F(TiedPatchesTest, ApplyAfterAPatchThatMadeThemEqual) {
  OwnWeights own = {old_, named(new_, "b")};
  OwnWeights equal = {new_, named(new_, "b")};
  const auto applied = apply_patch(memory_of(own), join(patch_of(equal, own), tied_patch({newest_}, {new_})));
  ASSERT_TRUE(applied) << applied.error().message();
  EXPECT_EQ(own[0].bytes, newest_.bytes);
  EXPECT_EQ(own[1].bytes, newest_.bytes);
}

TEST_F(TiedPatchesTest, ApplyBeforeAPatchOfOneOfThem) {
  OwnWeights own = {old_, named(old_, "b")};
  OwnWeights after = {new_, named(new_, "b")};
  OwnWeights last = {new_, named(newest_, "b")};
  ASSERT_TRUE(apply_patch(memory_of(own), join(tied_patch({new_}, {old_}), patch_of(last, after))));
  EXPECT_TRUE(same_bytes(own, last));
}

TEST_F(TiedPatchesTest, AreNamedWhenOneOfThemIsWritten) {
  const Bytes patch = tied_patch({new_}, {old_});
  OwnWeights half = {new_, named(old_, "b")};
  EXPECT_EQ(*Patch::open(patch)->state_of(memory_of(half)), PatchState::partly);
  EXPECT_EQ(apply_patch(memory_of(half), patch).error().code(), ErrorCode::wrong_base);
}

TEST_F(TiedPatchesTest, AreRefusedWhereAnotherTensorIsTiedToOne) {
  OwnWeights from = {old_, named(old_, "b"), named(old_, "c")};
  OwnWeights to = {new_, named(new_, "b"), named(newest_, "c")};
  std::vector<WeightMemory> maker = memory_of(to);
  maker[1].memory = maker[0].memory;
  std::vector<WeightMemory> maker_base = memory_of(from);
  maker_base[1].memory = maker_base[0].memory;
  const auto patch = make_patch(maker, maker_base);
  ASSERT_TRUE(patch);
  OwnWeights own = from;
  std::vector<WeightMemory> receiver = memory_of(own);
  receiver[2].memory = receiver[1].memory;
  const auto applied = apply_patch(receiver, *patch);
  ASSERT_FALSE(applied);
  EXPECT_NE(applied.error().message().find("are the same memory here, but the patch changes them apart"),
            std::string::npos);
  EXPECT_TRUE(same_bytes(own, from));
}

TEST_F(TiedPatchesTest, VerifyingAllFindsATensorThatIsTiedOnlyHere) {
  OwnWeights from = {old_, named(old_, "b")};
  OwnWeights to = {new_, named(old_, "b")};
  const Bytes patch = patch_of(to, from, {.hash_unchanged = true});
  OwnWeights own = {old_};
  const auto applied = apply_patch(tied(own), patch, {.threads = 0, .verify = Verify::all});
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code(), ErrorCode::wrong_base);
  EXPECT_EQ(own[0].bytes, old_.bytes);
}

TEST(StagedChangesTest, OfASlabThatIsCodedAsAWholeAreThoseThatChange) {
  OwnWeights base = {random_tensor("a", DType::i32, 1'000, 1)};
  OwnWeights weights = base;
  change_some(weights[0], 2, 2);
  std::uint64_t changed = 0;
  for (std::size_t at = 0; at < base[0].bytes.size(); at += 4) {
    changed += std::memcmp(&base[0].bytes[at], &weights[0].bytes[at], 4) != 0 ? 1U : 0U;
  }
  const Bytes patch = patch_of(weights, base);
  const auto staged = Patch::open(patch)->stage(memory_of(base));
  ASSERT_TRUE(staged);
  EXPECT_EQ(staged->changed_elements(), changed);
  EXPECT_EQ(staged->changes("a")->places.size(), changed);
}

// A patch of very many tensors opens in time of its tensors.
TEST(PatchLimitsTest, ManyTensorsOpenFast) {
  OwnWeights base;
  for (std::uint32_t i = 0; i < 30'000; ++i) {
    base.push_back({.name = "layer." + std::to_string(i), .dtype = DType::u8, .shape = {1}, .bytes = Bytes(1)});
  }
  OwnWeights weights = base;
  for (OwnTensor& own : weights) own.bytes[0] = std::byte{1};
  const Bytes patch = patch_of(weights, base);
  EXPECT_EQ(Patch::open(patch)->tensors().size(), 30'000U);
  ASSERT_TRUE(apply_patch(memory_of(base), patch));
  EXPECT_TRUE(same_bytes(base, weights));
}

TEST(PatchLimitsTest, NamesThatReadersRefuseAreRefusedByTheMaker) {
  OwnWeights base = {bf16_tensor(std::string(70'000, 'x'), 10, 1)};
  const auto patch = make_patch(memory_of(base), memory_of(base));
  ASSERT_FALSE(patch);
  EXPECT_EQ(patch.error().kind(), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace bitsnap::patch
