// One element of a gradient step: spec.md, "Elements". For the loops of kernels. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernel_bits.hpp"
#include "codec/gradient_step/fused_arithmetic.hpp"
#include "codec/gradient_step/gradient_step_kernel.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000;

inline std::uint32_t bits_of(float number) noexcept { return __builtin_bit_cast(std::uint32_t, number); }
inline float float_of(std::uint32_t bits) noexcept { return __builtin_bit_cast(float, bits); }

template <GradientForm kForm>
inline float moved(float x, float number, const GradientConstants& constants) noexcept {
  const auto [keep, gain, scale] = constants;
  const float gradient = scale * number;
  if constexpr (kForm == GradientForm::lerp_fused) return fused(gain, gradient - x, x);
  if constexpr (kForm == GradientForm::lerp) return x + gain * (gradient - x);
  if constexpr (kForm == GradientForm::add_fused) return fused(gain, gradient, keep * x);
  if constexpr (kForm == GradientForm::decay_fused) return fused(keep, x, gain * gradient);
  return keep * x + gain * gradient;
}

// The bits of NaNs differ between machines, so the base replaces a NaN.
template <GradientForm kForm>
inline std::uint32_t moved_bits(float x, float number, const GradientConstants& constants) noexcept {
  const std::uint32_t bits = bits_of(moved<kForm>(x, number, constants));
  return (bits & 0x7fffffff) > kInfinityBits ? bits_of(x) : bits;
}

// Rounds to nearest, ties to even, at a bit; 0 for infinities and NaNs.
struct Rounding {
  std::uint32_t half_less_one;
  std::uint32_t mask;
  unsigned shift;

  explicit Rounding(unsigned bits) noexcept
      : half_less_one(bits < 24 ? (std::uint32_t{1} << (23 - bits)) - 1 : 0),
        mask(~((std::uint32_t{1} << (24 - bits)) - 1)),
        shift(24 - bits) {}

  [[nodiscard]] float of(float number) const noexcept {
    const std::uint32_t bits = bits_of(number);
    const std::uint32_t odd = shift > 0 ? bits >> shift & 1 : 0;
    const std::uint32_t rounded = (bits + half_less_one + odd) & mask;
    return float_of((rounded & kInfinityBits) == kInfinityBits ? 0 : rounded);
  }
};

// The bits in reverse order.
inline std::uint32_t reversed_16(std::uint32_t bits) noexcept {
  bits = (bits >> 1 & 0x5555) | (bits & 0x5555) << 1;
  bits = (bits >> 2 & 0x3333) | (bits & 0x3333) << 2;
  bits = (bits >> 4 & 0x0f0f) | (bits & 0x0f0f) << 4;
  return (bits >> 8 | bits << 8) & 0xffff;
}

template <typename Body>
inline auto by_form(GradientForm form, Body&& body) noexcept {
  switch (form) {
    case GradientForm::lerp_fused: return body.template operator()<GradientForm::lerp_fused>();
    case GradientForm::lerp: return body.template operator()<GradientForm::lerp>();
    case GradientForm::add_fused: return body.template operator()<GradientForm::add_fused>();
    case GradientForm::decay_fused: return body.template operator()<GradientForm::decay_fused>();
    case GradientForm::decay_and_add: break;
  }
  return body.template operator()<GradientForm::decay_and_add>();
}

}  // namespace
}  // namespace bitsnap::codec
