// Tensors that hold the same bytes as another one, of the same state or of the base, whatever their names: they are
// stored once, and come back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "save/state_testing.hpp"

namespace bitsnap::save {
namespace {

constexpr std::size_t kElements = kChunkElements * 2 + 1000;

class EqualTensors : public testing::Test {
 protected:
  static std::shared_ptr<const Snapshot> written(const State& state, const SaveOptions& options = {}) {
    auto file = write_state(state, options);
    EXPECT_TRUE(file.has_value()) << file.error().message();
    auto snapshot = open_file("a.bsnap", std::move(file->file));
    EXPECT_TRUE(snapshot->verify().value().empty());
    return snapshot;
  }

  static State state_of(const std::vector<std::pair<std::string, const Bytes*>>& tensors) {
    State state;
    for (const auto& [name, bytes] : tensors) {
      state.tensors.push_back(source(name, DType::f32, {bytes->size() / 4}, *bytes));
    }
    return state;
  }

  Bytes weight_ = f32_masters(kElements, 1);
  Bytes copy_ = weight_;
  Bytes other_ = f32_masters(kElements, 2);
};

TEST_F(EqualTensors, AreStoredOnceInOneState) {
  const Bytes third = weight_;
  const auto snapshot = written(state_of({{"a/w", &weight_}, {"x", &other_}, {"b/v", &copy_}, {"c", &third}}));
  for (const std::string_view name : {"b/v", "c"}) {
    EXPECT_EQ(codecs_of(*snapshot, name), std::set<std::string>{"same"});
    EXPECT_EQ(stored_bytes(*snapshot, name), 0U);
    EXPECT_EQ(read_tensor(*snapshot, name), weight_);
  }
  EXPECT_EQ(codecs_of(*snapshot, "x").count("same"), 0U);
  EXPECT_EQ(read_tensor(*snapshot, "x"), other_);
}

TEST_F(EqualTensors, AreComparedChunkByChunk) {
  copy_[copy_.size() - 400] ^= std::byte{1};  // in the last chunk, outside the sample
  const auto snapshot = written(state_of({{"a", &weight_}, {"b", &copy_}}));
  const auto chunks = chunks_of(*snapshot, "b");
  ASSERT_EQ(chunks.size(), 3U);
  EXPECT_EQ(chunks[0].codec, "same");
  EXPECT_EQ(chunks[1].codec, "same");
  EXPECT_NE(chunks[2].codec, "same");
  EXPECT_EQ(read_tensor(*snapshot, "b"), copy_);
}

TEST_F(EqualTensors, NeedTheSameDtypeAndSize) {
  const Bytes shorter(weight_.begin(), weight_.end() - 4096);
  State state = state_of({{"a", &weight_}, {"b", &shorter}});
  state.tensors.push_back(source("c", DType::i32, {kElements}, copy_));
  const auto snapshot = written(state);
  for (const std::string_view name : {"b", "c"}) EXPECT_EQ(codecs_of(*snapshot, name).count("same"), 0U);
}

TEST_F(EqualTensors, AreCodedAsTheirMasterOrConstantIfThatTakesNoOtherChunk) {
  const Bytes zeros(kElements * 4);
  const Bytes zeros_too = zeros;
  const auto snapshot = written(state_of({{"a", &zeros}, {"b", &zeros_too}}));
  EXPECT_EQ(codecs_of(*snapshot, "b"), std::set<std::string>{"constant"});
}

TEST_F(EqualTensors, OfHalvesComeAfterTheirMaster) {
  const Bytes half = rounded(weight_);
  const Bytes half_too = half;
  State state;
  state.tensors.push_back(source("model.w", DType::bf16, {kElements}, half));
  state.tensors.push_back(source("ema.w", DType::bf16, {kElements}, half_too));
  state.tensors.push_back(source("master.w", DType::f32, {kElements}, weight_));
  state.tensors.push_back(source("master.copy", DType::f32, {kElements}, copy_));
  const auto snapshot = written(state);
  EXPECT_LE(stored_bytes(*snapshot, "model.w"), 3U);
  EXPECT_LE(stored_bytes(*snapshot, "ema.w"), 3U);
  EXPECT_EQ(stored_bytes(*snapshot, "master.copy") * stored_bytes(*snapshot, "master.w"), 0U);
  for (const std::string_view name : {"model.w", "ema.w"}) EXPECT_EQ(read_tensor(*snapshot, name), half);
  for (const std::string_view name : {"master.w", "master.copy"}) EXPECT_EQ(read_tensor(*snapshot, name), weight_);
}

TEST_F(EqualTensors, GiveTheSameBytesForAnyNumberOfThreads) {
  const Bytes third = weight_;
  expect_same_bytes_for_any_threads(state_of({{"a", &weight_}, {"b", &other_}, {"c", &copy_}, {"d", &third}}));
}

TEST_F(EqualTensors, AreSeenByPoliciesThatChooseByObjectiveOnly) {
  SaveOptions options;
  options.settings.policy = Policy::bitsnap;
  const auto snapshot = written(state_of({{"a", &weight_}, {"b", &copy_}}), options);
  EXPECT_EQ(codecs_of(*snapshot, "b").count("same"), 0U);
}

TEST_F(EqualTensors, ComeBackFromAFileThatLostItsBase) {
  Chain chain;
  chain.save(state_of({{"a", &weight_}, {"b", &copy_}}));
  change(weight_, 64, 1);
  copy_ = weight_;
  const Snapshot& second = chain.save(state_of({{"a", &weight_}, {"b", &copy_}}));
  EXPECT_EQ(codecs_of(second, "b"), std::set<std::string>{"same"});
  auto rewritten = rewrite(second, {chain.at(0)->id()});
  ASSERT_TRUE(rewritten.has_value()) << rewritten.error().message();
  const auto alone = open_file("b.bsnap", rewritten->file);
  EXPECT_EQ(codecs_of(*alone, "b"), std::set<std::string>{"same"});
  for (const std::string_view name : {"a", "b"}) EXPECT_EQ(read_tensor(*alone, name), weight_);
}

TEST_F(EqualTensors, OfTheBaseAreFoundUnderAnotherName) {
  Chain chain;
  chain.save(state_of({{"old", &weight_}, {"x", &other_}}));
  const Snapshot& renamed = chain.save(state_of({{"entirely.new", &copy_}, {"x", &other_}}));
  EXPECT_EQ(codecs_of(renamed, "entirely.new"), std::set<std::string>{"same"});
  EXPECT_EQ(read_tensor(renamed, "entirely.new"), weight_);
}

TEST_F(EqualTensors, ThatChangedAreCodedAgainstTheTensorWithoutThePrefix) {
  for (const auto& [before, after] :
       std::vector<std::pair<std::string, std::string>>{{"layer.w", "module.layer.w"},
                                                        {"_orig_mod.layer.w", "layer.w"},
                                                        {"model.layer.w", "model.module.layer.w"},
                                                        {"a/model.w", "a/model._orig_mod.w"},
                                                        {"a.layer.w", "layer.w"}}) {
    Chain chain;
    chain.save(state_of({{before, &weight_}, {"other.layer.v", &other_}}));
    Bytes changed = weight_;
    change(changed, 4, 1);
    const Snapshot& next = chain.save(state_of({{after, &changed}, {"other.layer.v", &other_}}));
    EXPECT_TRUE(std::ranges::all_of(chunks_of(next, after), &ChunkInfo::uses_base)) << after;
    EXPECT_EQ(read_tensor(next, after), changed);
  }
}

TEST_F(EqualTensors, AreNotTakenFromATensorWhoseNameOnlyEndsLikeSeveral) {
  Chain chain;
  Bytes changed = f32_masters(kElements, 3);
  chain.save(state_of({{"one.w", &weight_}, {"two.w", &other_}}));
  const Snapshot& next = chain.save(state_of({{"w", &changed}}));
  EXPECT_TRUE(std::ranges::none_of(chunks_of(next, "w"), &ChunkInfo::uses_base));
}

TEST_F(EqualTensors, AreFoundByTheWholeNameIfAnotherOnlyEndsWithIt) {
  Chain chain;
  chain.save(state_of({{"w", &weight_}, {"ema.w", &other_}}));
  Bytes changed = weight_;
  Bytes other = other_;
  change(changed, 4, 1);
  change(other, 4, 1);
  const Snapshot& next = chain.save(state_of({{"x.w", &changed}, {"x.ema.w", &other}}));
  for (const std::string_view name : {"x.w", "x.ema.w"}) {
    EXPECT_TRUE(std::ranges::all_of(chunks_of(next, name), &ChunkInfo::uses_base)) << name;
  }
}

TEST_F(EqualTensors, OfTheirFirstChunksOnlyFollowTheirNames) {
  std::fill_n(weight_.begin(), kChunkElements * 4, std::byte{0});
  std::fill_n(other_.begin(), kChunkElements * 4, std::byte{0});
  Chain chain;
  chain.save(state_of({{"a.w", &weight_}, {"b.w", &other_}}));
  Bytes a = weight_;
  Bytes b = other_;
  a.back() ^= std::byte{1};
  b.back() ^= std::byte{1};
  const Snapshot& next = chain.save(state_of({{"module.b.w", &b}, {"module.a.w", &a}}));
  EXPECT_EQ(chunks_of(next, "module.b.w")[1].codec, "same");
  EXPECT_EQ(chunks_of(next, "module.a.w")[1].codec, "same");
}

TEST_F(EqualTensors, NeedNoBaseOfTheBaseToBeLookedFor) {
  Chain chain;
  chain.save(state_of({{"x", &weight_}}));
  chain.save(state_of({{"x", &weight_}, {"y", &other_}}));
  const auto alone = open_file("alone.bsnap", chain.file(1), chain.bases({}));
  SingleBase bases(alone);
  const Bytes added = f32_masters(kElements, 5);
  const auto written = write_state(state_of({{"y", &other_}, {"z", &added}}), {}, &bases);
  EXPECT_TRUE(written.has_value()) << written.error().message();
}

}  // namespace
}  // namespace bitsnap::save
