// Shared by both sides of the codec ordinal_delta: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include <bitsnap/dtype.hpp>

#include "base/checked.hpp"
#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"
#include "codec/short_elements.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// On disk: never change or reuse.
enum class OrdinalDeltaForm : std::uint8_t {
  dense = 0,        // all elements' deltas, in lanes
  sparse = 1,       // lists of the changed elements
  above_floor = 2,  // like dense, but distances from a share of the bases
};

// Elements that are processed together so that they stay in the cache. A multiple of a round of the lane coder.
inline constexpr std::size_t kDeltasPart = 2048;
static_assert(kDeltasPart % entropy::kRansRoundElements == 0);

[[nodiscard]] constexpr bool has_deltas(DType dtype) noexcept {
  switch (dtype) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f16:
    case DType::bf16:
    case DType::f32: return true;
    default: return false;
  }
}

// Precondition: has_deltas(dtype).
[[nodiscard]] constexpr DeltaGeometry geometry_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f8_e4m3: return {.element_bytes = 1, .mantissa_bits = 3, .exponent_mask = 0x0f, .most_finite = 0x0f};
    case DType::f8_e5m2: return {.element_bytes = 1, .mantissa_bits = 2, .exponent_mask = 0x1f, .most_finite = 0x1e};
    case DType::f16: return {.element_bytes = 2, .mantissa_bits = 10, .exponent_mask = 0x1f, .most_finite = 0x1e};
    case DType::bf16: return {.element_bytes = 2, .mantissa_bits = 7, .exponent_mask = 0xff, .most_finite = 0xfe};
    default: return {.element_bytes = 4, .mantissa_bits = 23, .exponent_mask = 0xff, .most_finite = 0xfe};
  }
}

// For elements that may be shortened.
[[nodiscard]] inline DeltaGeometry geometry_of(const ShortFloats& floats) noexcept {
  DeltaGeometry geometry = geometry_of(floats.dtype);
  geometry.element_bytes = floats.element_bytes();
  geometry.mantissa_bits -= floats.zero_bits;
  return geometry;
}

// The fields before the low bytes: form, top exponent, first direct context, low bytes of an element, far elements
// (dense); form, top exponent, low bytes of an element, far elements, factor (above_floor).
inline constexpr std::size_t kDenseHeaderBytes = 4 + sizeof(std::uint32_t);
inline constexpr std::size_t kFloorHeaderBytes = 3 + 2 * sizeof(std::uint32_t);

// Whether `bits` is a positive normal F32, which a factor must be.
[[nodiscard]] constexpr bool is_floor_factor(std::uint32_t bits) noexcept {
  return bits >= 0x00800000 && bits < 0x7f800000;
}

}  // namespace bitsnap::codec
