// make_patch() and apply_patch(): whatever changes arrives, on every CPU level and for every number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <bitsnap/patch.hpp>

#include "base/cpu_levels_testing.hpp"
#include "base/sanitizers_testing.hpp"
#include "patch/weights_testing.hpp"

namespace bitsnap::patch {
namespace {

// Makes the patch at every level and with one and two threads, which must give the same bytes, and applies it.
Bytes expect_round_trip(const OwnWeights& base, const OwnWeights& weights) {
  Bytes first;
  at_every_level([&] {
    for (const unsigned threads : {1U, 2U}) {
      OwnWeights from = base;
      OwnWeights to = weights;
      const Bytes patch = patch_of(to, from, {.threads = threads});
      if (first.empty()) first = patch;
      ASSERT_EQ(patch, first);
      const auto applied = apply_patch(memory_of(from), patch, {.threads = threads});
      ASSERT_TRUE(applied) << applied.error().message();
      ASSERT_TRUE(same_bytes(from, weights));
    }
  });
  return first;
}

TEST(PatchTest, AppliesWhatATrainingStepChanges) {
  for (const double rate : {1e-8, 1e-7, 1e-6, 1e-5, 1e-3}) {
    if (kHasSanitizer && rate != 1e-6) continue;
    SCOPED_TRACE(rate);
    const OwnWeights base = {bf16_tensor("a", 300'001, 1), bf16_tensor("b", 77, 2), bf16_tensor("c", 1'500'000, 3)};
    OwnWeights weights = base;
    for (std::uint32_t i = 0; i < weights.size(); ++i) step_bf16(weights[i], rate, i);
    expect_round_trip(base, weights);
  }
}

// The entropy of the changes given the exponents of the base is 4.9 and 5.8 bits here.
TEST(PatchTest, TakesLittleMoreThanTheEntropyOfTheChanges) {
  if (kHasSanitizer) GTEST_SKIP() << "sizes are the same";
  for (const auto& [rate, bits] : {std::pair{1e-6, 6.4}, std::pair{1e-5, 4.8}}) {
    OwnWeights base = {bf16_tensor("a", 3'000'000, 1)};
    OwnWeights weights = base;
    step_bf16(weights[0], rate, 2);
    std::size_t changed = 0;
    for (std::size_t at = 0; at < weights[0].bytes.size(); at += 2) {
      changed += std::memcmp(&weights[0].bytes[at], &base[0].bytes[at], 2) != 0 ? 1U : 0U;
    }
    const Bytes patch = patch_of(weights, base);
    EXPECT_LT(8.0 * static_cast<double>(patch.size()) / static_cast<double>(changed), bits);
  }
}

TEST(PatchTest, AppliesAnyChangeOfAnyDtype) {
  for (const DType dtype :
       {DType::opaque, DType::boolean, DType::u8, DType::i16, DType::i32, DType::i64, DType::f8_e4m3, DType::f8_e5m2,
        DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64}) {
    for (const std::uint32_t one_in : {1U, 3U, 50U, 5000U}) {
      if (kHasSanitizer && one_in == 3) continue;
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", one in " + std::to_string(one_in));
      OwnWeights base = {random_tensor("a", dtype, 5'003, 1), random_tensor("b", dtype, 1, 2),
                         random_tensor("c", dtype, kHasSanitizer ? 9'000 : 262'144, 3),
                         random_tensor("d", dtype, 131, 4)};
      OwnWeights weights = base;
      for (std::uint32_t i = 0; i < weights.size(); ++i) change_some(weights[i], one_in, 10 + i);
      expect_round_trip(base, weights);
    }
  }
}

TEST(PatchTest, AppliesSeveralDtypesAtOnceAndLeavesTheRestAlone) {
  OwnWeights base = {bf16_tensor("a", 70'000, 1), random_tensor("b", DType::f32, 1'000, 2),
                     random_tensor("same", DType::f32, 1'000, 3), bf16_tensor("c", 64, 4),
                     random_tensor("empty", DType::f16, 0, 5)};
  OwnWeights weights = base;
  step_bf16(weights[0], 1e-5, 1);
  change_some(weights[1], 10, 2);
  change_some(weights[3], 2, 3);
  const Bytes patch = expect_round_trip(base, weights);
  const auto opened = Patch::open(patch);
  ASSERT_TRUE(opened);
  std::vector<std::string> names;
  for (const Patch::Tensor& tensor : opened->tensors()) names.push_back(tensor.names.front());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "c", "b"}));
}

// One place in large slabs, at their ends, and in each of many tensors that share a slab.
TEST(PatchTest, AppliesSingleChangesAnywhere) {
  constexpr std::uint64_t kElements = (std::uint64_t{1} << 22) + 100;
  const OwnWeights base = {bf16_tensor("large", kElements, 1)};
  for (const std::uint64_t place :
       {std::uint64_t{0}, kElements - 1, (std::uint64_t{1} << 22) - 1, std::uint64_t{1} << 22}) {
    OwnWeights weights = base;
    weights[0].bytes[2 * place] ^= std::byte{1};
    OwnWeights from = base;
    const Bytes patch = patch_of(weights, from);
    EXPECT_LT(patch.size(), 250U);
    ASSERT_TRUE(apply_patch(memory_of(from), patch));
    EXPECT_TRUE(same_bytes(from, weights)) << place;
  }
  OwnWeights many;
  for (std::uint32_t i = 0; i < 200; ++i) many.push_back(bf16_tensor("t" + std::to_string(i), 1 + i % 130, i));
  OwnWeights weights = many;
  for (OwnTensor& own : weights) own.bytes.back() ^= std::byte{0x80};
  expect_round_trip(many, weights);
}

TEST(PatchTest, OfEqualWeightsIsNearlyNothing) {
  OwnWeights base = {bf16_tensor("a", 1'000'000, 1), random_tensor("b", DType::i64, 1'000, 2)};
  OwnWeights weights = base;
  const Bytes patch = expect_round_trip(base, weights);
  EXPECT_LT(patch.size(), 100U);
  EXPECT_EQ(patch_of(base, base), patch);  // the same memory
}

TEST(PatchTest, OfFrozenWeightsCostsNothing) {
  OwnWeights base = {bf16_tensor("adapter", 4'096, 1)};
  OwnWeights weights = base;
  step_bf16(weights[0], 1e-5, 1);
  const std::size_t alone = patch_of(weights, base).size();
  for (OwnWeights* own : {&base, &weights}) own->push_back(bf16_tensor("frozen", 2'000'000, 2));
  EXPECT_EQ(patch_of(weights, base).size(), alone);
}

TEST(PatchTest, CarriesTexts) {
  OwnWeights base = {bf16_tensor("a", 100, 1)};
  const Bytes patch = patch_of(base, base, {.from = "7", .to = "8", .metadata = {{"run", "x"}, {"note", "\xc3\xa4"}}});
  const auto opened = Patch::open(patch);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->from(), "7");
  EXPECT_EQ(opened->to(), "8");
  EXPECT_EQ(opened->metadata(), (std::vector<std::pair<std::string, std::string>>{{"run", "x"}, {"note", "\xc3\xa4"}}));
}

TEST(PatchTest, NeedsTheSameTensorsInBothVersions) {
  OwnWeights base = {bf16_tensor("a", 100, 1), bf16_tensor("b", 100, 2)};
  const auto message_of = [&](OwnWeights weights) {
    const auto patch = make_patch(memory_of(weights), memory_of(base));
    EXPECT_FALSE(patch);
    EXPECT_EQ(patch.error().kind(), ErrorKind::invalid_argument);
    return patch.error().message();
  };
  EXPECT_NE(message_of({base[0]}).find("tensor 'b' of the base is missing in the weights"), std::string::npos);
  EXPECT_NE(message_of({base[0], base[1], bf16_tensor("c", 1, 3)}).find("tensor 'c' is missing in the base"),
            std::string::npos);
  EXPECT_NE(message_of({base[0], bf16_tensor("b", 99, 3)}).find("the weights have BF16 [99], the base has BF16 [100]"),
            std::string::npos);
  EXPECT_NE(message_of({base[0], base[0]}).find("tensor 'a' occurs twice"), std::string::npos);
  OwnWeights short_memory = base;
  short_memory[1].bytes.pop_back();
  EXPECT_NE(message_of(short_memory).find("BF16 [100] takes 200 bytes, but its memory has 199"), std::string::npos);
}

TEST(PatchTest, KeepsTiedWeightsTied) {
  OwnWeights base = {bf16_tensor("embedding", 10'000, 1)};
  OwnWeights weights = base;
  step_bf16(weights[0], 1e-5, 1);
  const auto with_head = [](OwnWeights& own) {
    std::vector<WeightMemory> memory = memory_of(own);
    memory.push_back(memory.front());
    memory.back().name = "head";
    return memory;
  };
  const auto patch = make_patch(with_head(weights), with_head(base));
  ASSERT_TRUE(patch);
  EXPECT_LT(patch->size(), patch_of(weights, base).size() + 30);
  const auto opened = Patch::open(*patch);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->tensors().front().names, (std::vector<std::string>{"embedding", "head"}));

  OwnWeights tied = base;
  ASSERT_TRUE(apply_patch(with_head(tied), *patch));
  EXPECT_TRUE(same_bytes(tied, weights));
  OwnWeights other_name = base;
  other_name[0].name = "head";
  ASSERT_TRUE(apply_patch(memory_of(other_name), *patch));
  EXPECT_TRUE(same_bytes(other_name, weights));
  OwnWeights apart = {base[0], base[0]};
  apart[1].name = "head";
  ASSERT_TRUE(apply_patch(memory_of(apart), *patch));
  EXPECT_EQ(apart[0].bytes, weights[0].bytes);
  EXPECT_EQ(apart[1].bytes, weights[0].bytes);
  OwnWeights different = {base[0], bf16_tensor("head", 10'000, 2)};
  const auto refused = apply_patch(memory_of(different), *patch);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "tensor 'embedding' and tensor 'head' are tied in the patch, but differ here");
  EXPECT_EQ(different[0].bytes, base[0].bytes);
}

// As clones of a state_dict have.
TEST(PatchTest, KeepsWeightsTiedWhoseBaseHasLostTheTie) {
  OwnWeights base = {bf16_tensor("a", 5'000, 1), bf16_tensor("b", 5'000, 1)};
  OwnWeights weights = base;
  step_bf16(weights[0], 1e-5, 1);
  std::vector<WeightMemory> memory = memory_of(weights);
  memory[1].memory = memory[0].memory;
  const auto patch = make_patch(memory, memory_of(base));
  ASSERT_TRUE(patch);
  const auto opened = Patch::open(*patch);
  ASSERT_EQ(opened->tensors().size(), 1U);
  EXPECT_EQ(opened->tensors().front().names, (std::vector<std::string>{"a", "b"}));
  // What was not tied in the base changes apart.
  base[1] = bf16_tensor("b", 5'000, 2);
  const auto apart = make_patch(memory, memory_of(base));
  ASSERT_TRUE(apart);
  ASSERT_TRUE(apply_patch(memory_of(base), *apart));
  EXPECT_EQ(base[0].bytes, weights[0].bytes);
  EXPECT_EQ(base[1].bytes, weights[0].bytes);
}

TEST(PatchTest, RefusesTensorsThatShareMemoryInPart) {
  OwnWeights base = {bf16_tensor("a", 100, 1)};
  std::vector<WeightMemory> memory = memory_of(base);
  memory.push_back(memory.front());
  memory.back().name = "half";
  memory.back().shape = {50};
  memory.back().size_bytes = 100;
  const auto patch = make_patch(memory, memory);
  ASSERT_FALSE(patch);
  EXPECT_NE(patch.error().message().find("share memory, but are not the same tensor"), std::string::npos);
}

}  // namespace
}  // namespace bitsnap::patch
