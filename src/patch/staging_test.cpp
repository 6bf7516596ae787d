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
  EXPECT_EQ(patch.error().message(), "patch 2: it applies to '2', but the one before makes '1'");
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

}  // namespace
}  // namespace bitsnap::patch
