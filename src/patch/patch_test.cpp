// make_patch() and Patch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <bitsnap/patch.hpp>

namespace bitsnap {
namespace {

using Bytes = std::vector<std::byte>;

struct OwnTensor {
  std::string name;
  DType dtype;
  std::vector<std::uint64_t> shape;
  Bytes bytes;
};

using Weights = std::vector<OwnTensor>;

std::vector<WeightMemory> memory_of(Weights& weights) {
  std::vector<WeightMemory> memory;
  for (OwnTensor& own : weights) {
    memory.push_back({.name = own.name,
                      .dtype = own.dtype,
                      .dtype_name = {},
                      .shape = own.shape,
                      .memory = own.bytes.data(),
                      .size_bytes = own.bytes.size()});
  }
  return memory;
}

std::uint16_t bf16_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

OwnTensor normal_bf16(std::string name, std::uint64_t elements, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  OwnTensor tensor{.name = std::move(name), .dtype = DType::bf16, .shape = {elements}, .bytes = Bytes(2 * elements)};
  for (std::uint64_t i = 0; i < elements; ++i) {
    const std::uint16_t bits = bf16_of(normal(random));
    std::memcpy(tensor.bytes.data() + 2 * i, &bits, 2);
  }
  return tensor;
}

// A training step at a learning rate near the ULP of the weights: the smaller an element, the likelier and farther it
// moves.
void move_weights(OwnTensor& tensor, double rate, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, rate);
  std::uniform_real_distribution<double> inside(-0.5, 0.5);
  for (std::size_t i = 0; i < tensor.bytes.size() / 2; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, tensor.bytes.data() + 2 * i, 2);
    const std::uint32_t wide = std::uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    const std::uint32_t next = wide + 0x10000;
    float after;
    std::memcpy(&after, &next, 4);
    const double ulp = std::abs(double{after} - double{value});
    const double moved = double{value} + inside(random) * ulp + normal(random);
    const auto rounded = static_cast<float>(moved);
    std::uint32_t moved_bits;
    std::memcpy(&moved_bits, &rounded, 4);
    const auto result = static_cast<std::uint16_t>((moved_bits + 0x7fff + (moved_bits >> 16 & 1)) >> 16);
    std::memcpy(tensor.bytes.data() + 2 * i, &result, 2);
  }
}

Bytes make(Weights& weights, Weights& base, const PatchOptions& options = {}) {
  auto patch = make_patch(memory_of(weights), memory_of(base), options);
  EXPECT_TRUE(patch) << patch.error().message();
  return patch ? *patch : Bytes();
}

void expect_same(const Weights& a, const Weights& b) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].bytes == b[i].bytes) << a[i].name;
}

TEST(PatchTest, AppliesWhatATrainingStepChanges) {
  for (const double rate : {1e-7, 1e-6, 1e-5, 1e-3}) {
    Weights base = {normal_bf16("a", 300'001, 1), normal_bf16("b", 77, 2), normal_bf16("c", 1'500'000, 3)};
    Weights weights = base;
    for (std::uint32_t i = 0; i < weights.size(); ++i) move_weights(weights[i], rate, i);
    const Bytes patch = make(weights, base);
    std::size_t changed = 0;
    for (std::size_t t = 0; t < base.size(); ++t) {
      for (std::size_t i = 0; i < base[t].bytes.size(); i += 2) {
        changed += std::memcmp(base[t].bytes.data() + i, weights[t].bytes.data() + i, 2) != 0 ? 1U : 0U;
      }
    }
    std::printf("rate %g: %zu changed of %d, %zu bytes, %.3f bits a change\n", rate, changed, 1'800'078, patch.size(),
                8.0 * static_cast<double>(patch.size()) / static_cast<double>(changed));
    const auto applied = apply_patch(memory_of(base), patch);
    ASSERT_TRUE(applied) << applied.error().message();
    expect_same(base, weights);
  }
}

}  // namespace
}  // namespace bitsnap
