// Scales, integers and multiples of one element: spec.md, "Lattice". For the loops of kernels; everything has internal
// linkage, so that no other file can be given code it cannot run.
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

// The integer that is nearest, of two the even one; 0 of what is no number or nearer to 32,768 than to 32,767.
inline std::int32_t nearest_integer(float number) noexcept {
  constexpr std::uint32_t kMost = 0x46fffeff;   // the largest below 32,767.5
  constexpr float kOnlyIntegers = 12582912.0F;  // 1.5 * 2^23, from where on floats are whole numbers
  constexpr std::uint32_t kBitsOfThat = 0x4b400000;
  const auto bits = __builtin_bit_cast(std::uint32_t, number);
  // All bits where it is kept. A branch would keep the compiler from making vectors.
  const auto kept = static_cast<std::uint32_t>(static_cast<std::int32_t>((bits & 0x7fffffff) - (kMost + 1)) >> 31);
  const float whole = __builtin_bit_cast(float, bits& kept) + kOnlyIntegers;
  return static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, whole) - kBitsOfThat);
}

// The bits of that multiple; of 0 where it is no number, as that is not the same on all machines.
inline std::uint32_t multiple_of(float scale, std::int32_t integer) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(integer) * scale);
  return (bits & 0x7fffffff) > 0x7f800000 ? 0 : bits;
}

}  // namespace
}  // namespace bitsnap::codec
