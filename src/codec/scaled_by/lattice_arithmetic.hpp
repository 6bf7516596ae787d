// Scales, integers and multiples of one element: spec.md, "Lattice". For the loops of kernels. Everything has internal
// linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

inline float scale_of(float square, float a, float b) noexcept {
  const float scaled = a * __builtin_sqrtf(square);
  return scaled + b;
}

// The nearest integer, ties to even; 0 for NaNs and for numbers that are nearer to 32,768 than to 32,767.
inline std::int32_t nearest_integer(float number) noexcept {
  constexpr std::uint32_t kMost = 0x46fffeff;   // the largest below 32,767.5
  constexpr float kOnlyIntegers = 12582912.0F;  // 1.5 * 2^23: from here on, floats are integers
  constexpr std::uint32_t kBitsOfThat = 0x4b400000;
  const auto bits = __builtin_bit_cast(std::uint32_t, number);
  // All bits set if the number is kept. A branch would prevent vectorization.
  const auto kept = static_cast<std::uint32_t>(static_cast<std::int32_t>((bits & 0x7fffffff) - (kMost + 1)) >> 31);
  const float whole = __builtin_bit_cast(float, bits& kept) + kOnlyIntegers;
  return static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, whole) - kBitsOfThat);
}

// The bits of the multiple; of 0 if it is NaN, because the bits of NaNs differ between machines.
inline std::uint32_t multiple_of(float scale, std::int32_t integer) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(integer) * scale);
  return (bits & 0x7fffffff) > 0x7f800000 ? 0 : bits;
}

}  // namespace
}  // namespace bitsnap::codec
