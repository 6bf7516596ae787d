// What both sides of the codec ordinal_delta agree on: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bitsnap/dtype.hpp>

#include "base/checked.hpp"
#include "codec/ordinal_delta/ordinal_steps_kernel.hpp"
#include "codec/short_elements.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// On disk: never change or reuse.
enum class OrdinalDeltaForm : std::uint8_t {
  dense = 0,        // every element's steps, in lanes
  sparse = 1,       // lists of those that changed
  above_floor = 2,  // as dense, but how far elements are above a share of their bases
};

// Elements that are measured, coded and used while they are in the cache. A multiple of a step of the lanes.
inline constexpr std::size_t kStepsPart = 2048;
static_assert(kStepsPart % entropy::kRansStepElements == 0);
inline constexpr std::size_t kPartSteps = kStepsPart / entropy::kRansStepElements;

[[nodiscard]] constexpr bool has_steps(DType dtype) noexcept {
  switch (dtype) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f16:
    case DType::bf16:
    case DType::f32: return true;
    default: return false;
  }
}

// Precondition: has_steps(dtype).
[[nodiscard]] constexpr StepGeometry geometry_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f8_e4m3: return {.element_bytes = 1, .mantissa_bits = 3, .exponent_mask = 0x0f, .most_finite = 0x0f};
    case DType::f8_e5m2: return {.element_bytes = 1, .mantissa_bits = 2, .exponent_mask = 0x1f, .most_finite = 0x1e};
    case DType::f16: return {.element_bytes = 2, .mantissa_bits = 10, .exponent_mask = 0x1f, .most_finite = 0x1e};
    case DType::bf16: return {.element_bytes = 2, .mantissa_bits = 7, .exponent_mask = 0xff, .most_finite = 0xfe};
    default: return {.element_bytes = 4, .mantissa_bits = 23, .exponent_mask = 0xff, .most_finite = 0xfe};
  }
}

// Of elements that may be shortened.
[[nodiscard]] inline StepGeometry geometry_of(const ShortFloats& floats) noexcept {
  StepGeometry geometry = geometry_of(floats.dtype);
  geometry.element_bytes = floats.element_bytes();
  geometry.mantissa_bits -= floats.zero_bits;
  return geometry;
}

// What stands before the low bytes of the dense form: form, top exponent, first direct context, low bytes of an
// element, far elements. And of that above a floor: form, top exponent, low bytes of an element, far elements, factor.
inline constexpr std::size_t kDenseHeaderBytes = 4 + sizeof(std::uint32_t);
inline constexpr std::size_t kFloorHeaderBytes = 3 + 2 * sizeof(std::uint32_t);

// Whether these are the bits of an F32 that elements can be measured above: a positive normal one.
[[nodiscard]] constexpr bool is_floor_factor(std::uint32_t bits) noexcept {
  return bits >= 0x00800000 && bits < 0x7f800000;
}

}  // namespace bitsnap::codec
