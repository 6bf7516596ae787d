// Weights in memory for tests, and what a step of training does to them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/patch.hpp>

#include "patch/moving_weights_testing.hpp"

namespace bitsnap::patch {

using Bytes = std::vector<std::byte>;

struct OwnTensor {
  std::string name;
  DType dtype = DType::bf16;
  std::vector<std::uint64_t> shape;
  Bytes bytes;
};

using OwnWeights = std::vector<OwnTensor>;

inline std::vector<WeightMemory> memory_of(OwnWeights& weights) {
  std::vector<WeightMemory> memory;
  for (OwnTensor& own : weights) {
    memory.push_back({.name = own.name,
                      .dtype = own.dtype,
                      .dtype_name = own.dtype == DType::opaque ? "F4" : "",
                      .shape = own.shape,
                      .memory = own.bytes.data(),
                      .size_bytes = own.bytes.size()});
  }
  return memory;
}

inline OwnTensor bf16_tensor(std::string name, std::uint64_t elements, std::uint32_t seed) {
  const std::vector<std::uint16_t> values = normal_weights(elements, seed);
  const auto* const bytes = reinterpret_cast<const std::byte*>(values.data());
  return {.name = std::move(name), .dtype = DType::bf16, .shape = {elements}, .bytes = {bytes, bytes + 2 * elements}};
}

// Any bits, so that NaNs and infinities are among the floats.
inline OwnTensor random_tensor(std::string name, DType dtype, std::uint64_t elements, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(elements * element_size(dtype));
  for (std::byte& own : bytes) own = static_cast<std::byte>(random() & (dtype == DType::boolean ? 1 : 255));
  return {.name = std::move(name), .dtype = dtype, .shape = {elements}, .bytes = std::move(bytes)};
}

inline void step_bf16(OwnTensor& tensor, double rate, std::uint32_t seed) {
  std::vector<std::uint16_t> values(tensor.bytes.size() / 2);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  move_weights(values, rate, seed);
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
}

// Changes about one element in so many, to any bits.
inline void change_some(OwnTensor& tensor, std::uint32_t one_in, std::uint32_t seed) {
  std::mt19937 random(seed);
  const std::size_t bytes = element_size(tensor.dtype);
  for (std::size_t at = 0; at < tensor.bytes.size(); at += bytes) {
    if (random() % one_in != 0) continue;
    for (std::size_t i = 0; i < bytes; ++i) {
      tensor.bytes[at + i] = static_cast<std::byte>(random() & (tensor.dtype == DType::boolean ? 1 : 255));
    }
  }
}

inline Bytes patch_of(OwnWeights& weights, OwnWeights& base, const PatchOptions& options = {}) {
  auto patch = make_patch(memory_of(weights), memory_of(base), options);
  EXPECT_TRUE(patch) << patch.error().message();
  return patch ? std::move(*patch) : Bytes();
}

[[nodiscard]] inline bool same_bytes(const OwnWeights& a, const OwnWeights& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const OwnTensor& x, const OwnTensor& y) { return x.bytes == y.bytes; });
}

}  // namespace bitsnap::patch
