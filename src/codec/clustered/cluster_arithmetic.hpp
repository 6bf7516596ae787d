// Labels, codes and numbers of one element: spec.md, "Clusters". For the kernels of the codec and of the quantizer.
// Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kClusterRun = 256;  // elements whose scales are looked up before vector arithmetic

inline double number_of(std::uint32_t bits) noexcept { return static_cast<double>(__builtin_bit_cast(float, bits)); }

// Has the order of the numbers; -0 is just below 0, and NaNs are beyond the infinities.
inline std::int32_t ordinal_of(std::uint32_t bits) noexcept {
  const auto number = static_cast<std::int32_t>(bits);
  return number ^ ((number >> 31) & 0x7fffffff);
}

inline std::uint32_t bits_of(std::int32_t ordinal) noexcept {
  return static_cast<std::uint32_t>(ordinal ^ ((ordinal >> 31) & 0x7fffffff));
}

// The distance between the numbers of neighbouring codes.
inline double scale_between(std::uint32_t least, std::uint32_t greatest) noexcept {
  const double range = number_of(greatest) - number_of(least);
  return range > 0 ? range / 255 : 1;
}

// All bits set if the element is between the least and the greatest number of the cluster.
inline std::uint32_t is_within(std::uint32_t bits, std::uint32_t least, std::uint32_t greatest) noexcept {
  const std::int32_t ordinal = ordinal_of(bits);
  return mask_of(ordinal >= ordinal_of(least)) & mask_of(ordinal <= ordinal_of(greatest));
}

// The nearest code, ties to even. Precondition: the number is within the cluster.
inline double code_of(double number, double least, double scale) noexcept {
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds to the nearest integer, ties to even
  return ((number - least) / scale + kToInteger) - kToInteger;
}

// The bits of the number with this code (0 to 255), given as an integer and as a double.
inline std::uint32_t coded_bits(std::uint32_t least, std::uint32_t greatest, double offset, double scale, double code,
                                std::uint32_t whole) noexcept {
  const auto nearest = static_cast<float>(offset + scale * code);
  const std::uint32_t is_least = mask_of(whole == 0);
  const std::uint32_t is_greatest = mask_of(whole == 255);
  const std::uint32_t inner = __builtin_bit_cast(std::uint32_t, nearest) & ~(is_least | is_greatest);
  return inner | (least & is_least) | (greatest & is_greatest);
}

}  // namespace
}  // namespace bitsnap::codec
