// BF16 weights, and what a step of training at a rate near their ULPs does to them: the smaller an element, the
// likelier and the farther it moves.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace bitsnap::patch {

inline std::uint16_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Normal, with a standard deviation of 0.02.
inline std::vector<std::uint16_t> normal_weights(std::uint64_t elements, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<std::uint16_t> weights(elements);
  for (std::uint16_t& own : weights) own = rounded(normal(random));
  return weights;
}

// Each element stands for a number within half an ULP of it, moves by a normal number with this standard deviation, and
// is rounded again.
inline void move_weights(std::vector<std::uint16_t>& weights, double rate, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, rate);
  std::uniform_real_distribution<double> inside(-0.5, 0.5);
  for (std::uint16_t& own : weights) {
    const auto value = static_cast<double>(std::bit_cast<float>(std::uint32_t{own} << 16));
    const auto next = static_cast<double>(std::bit_cast<float>((std::uint32_t{own} + 1) << 16));
    own = rounded(static_cast<float>(value + inside(random) * std::abs(next - value) + normal(random)));
  }
}

}  // namespace bitsnap::patch
