// The loops of rounding_kernel.hpp, one element after another: each CPU level compiles them for itself. Everything has
// internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {
namespace {

inline std::uint32_t master_at(const std::uint8_t* masters, std::size_t i) noexcept {
  std::uint32_t bits;
  __builtin_memcpy(&bits, masters + 4 * i, sizeof bits);
  return bits;
}

inline std::uint16_t half_at(const std::uint8_t* halves, std::size_t i) noexcept {
  std::uint16_t bits;
  __builtin_memcpy(&bits, halves + 2 * i, sizeof bits);
  return bits;
}

inline void put_half(std::uint32_t bits, std::uint8_t* halves, std::size_t i) noexcept {
  const auto half = static_cast<std::uint16_t>(bits);
  __builtin_memcpy(halves + 2 * i, &half, sizeof half);
}

inline void round_to_bf16_loop(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = master_at(masters, i);
    put_half((bits + 0x7fff + (bits >> 16 & 1)) >> 16, weights, i);
  }
}

// All three kinds of results are computed, so that nothing branches.
inline void round_to_f16_loop(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kLeastInfinite = 0x477ff000;  // what rounds to more than F16 has
  constexpr std::uint32_t kLeastNormal = 0x38800000;    // 2^-14
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = master_at(masters, i);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (std::uint32_t{112} << 23)) >> 13;
    // Subnormal: the significand counts in units of 2^-24. From 2^-25 on down, nothing is left.
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const std::uint32_t distance = 126 - exponent;
    const std::uint32_t shift = distance < 25 ? distance : 25;
    const std::uint32_t below = (std::uint32_t{1} << ((shift - 1) & 31)) - 1;
    const std::uint32_t subnormal = (significand + below + (significand >> shift & 1)) >> shift;
    std::uint32_t rounded = magnitude < kLeastNormal ? subnormal : normal;
    rounded = magnitude >= kLeastInfinite ? 0x7c00 : rounded;
    rounded = magnitude > kInfinity ? 0x7e00 : rounded;
    put_half((bits >> 16 & 0x8000) | rounded, weights, i);
  }
}

inline void low_halves_loop(const std::uint8_t* masters, std::size_t elements, std::uint8_t* lows) noexcept {
  for (std::size_t i = 0; i < elements; ++i) put_half(master_at(masters, i), lows, i);
}

inline void widen_bf16_loop(const std::uint8_t* weights, const std::uint8_t* lows, std::size_t elements,
                            std::uint8_t* masters) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t low = lows == nullptr ? 0U : half_at(lows, i);
    const std::uint32_t upper = half_at(weights, i) - (low > 0x8000 ? 1U : 0U);
    const std::uint32_t bits = upper << 16 | low;
    __builtin_memcpy(masters + 4 * i, &bits, sizeof bits);
  }
}

}  // namespace
}  // namespace bitsnap::codec
