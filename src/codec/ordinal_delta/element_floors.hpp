// The floor of an F32: the share of its base that remains after pure decay, spec.md, "Above a floor". Integer
// arithmetic, so no floating-point mode matters. For the kernels; everything has internal linkage.
#pragma once

#include <cstdint>

#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"

namespace bitsnap::codec {
namespace {

struct Floors {
  // `factor` is 0 if no element is measured from a floor.
  explicit Floors(std::uint32_t factor) noexcept
      : mantissa((factor & kMantissa) << 8 | kTopBit), exponent((factor >> kMantissaBits) - 128) {}

  [[nodiscard]] std::uint32_t of(std::uint32_t base) const noexcept {
    // The upper half of 64 bits; the bits below it are after the rounding bit.
    const auto product = static_cast<std::uint32_t>(std::uint64_t{base << 8 | kTopBit} * mantissa >> 32);
    const std::uint32_t top = product >> 31;
    const std::uint32_t rounded = ((top != 0 ? product >> 7 : product >> 6) + 1) >> 1;
    // The mantissa's first bit, and a carry out of it, are added to the exponent. An exponent out of range gives bits
    // that no positive normal number has.
    const std::uint32_t bits = (((base >> kMantissaBits) + exponent + top) << kMantissaBits) + rounded;
    return is_normal(base) && is_normal(bits) ? bits : 0;
  }

  // and positive
  static bool is_normal(std::uint32_t bits) noexcept { return bits - kLeastNormal < kNormals; }

  static constexpr unsigned kMantissaBits = 23;
  static constexpr std::uint32_t kMantissa = 0x007fffff;
  static constexpr std::uint32_t kTopBit = 0x80000000;
  static constexpr std::uint32_t kLeastNormal = 0x00800000;
  static constexpr std::uint32_t kNormals = 0x7f000000;

  std::uint32_t mantissa;  // with the leading bit, in the upper 24 bits
  std::uint32_t exponent;  // modulo 2^32; minus 128: one for the bias, one for the mantissa's leading bit
};

}  // namespace
}  // namespace bitsnap::codec
