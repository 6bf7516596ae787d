// Shared by both sides of the codec float_split: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/float_split/exponent_groups_kernel.hpp"
#include "codec/plane_groups.hpp"
#include "codec/short_elements.hpp"

namespace bitsnap::codec {

// The first byte of the payload: how the topmost byte is coded, and where the sign is. On disk: never change or reuse.
enum class FloatSplitForm : std::uint8_t {
  planes = 0,           // byte planes of the unchanged elements
  planes_rotated = 1,   // of the elements rotated left by one bit: the sign is below the mantissa
  planes_unsigned = 2,  // of the elements shifted left by one bit: no sign bit is set
  lanes = 3,            // split elements, unchanged
  lanes_rotated = 4,    // split elements, rotated left by one bit
};

inline constexpr std::size_t kFloatSplitHeaderBytes = 1;

// The last form for elements of this size.
[[nodiscard]] constexpr FloatSplitForm last_form(std::size_t element_bytes) noexcept {
  if (element_bytes == 1) return FloatSplitForm::planes;
  return element_bytes == 8 ? FloatSplitForm::planes_unsigned : FloatSplitForm::lanes_rotated;
}

[[nodiscard]] constexpr bool is_lanes(FloatSplitForm form) noexcept { return form >= FloatSplitForm::lanes; }

// Precondition: the form is a form of planes.
[[nodiscard]] constexpr PlaneForm plane_form(FloatSplitForm form) noexcept {
  if (form == FloatSplitForm::planes_rotated) return PlaneForm::rotated;
  return form == FloatSplitForm::planes_unsigned ? PlaneForm::unsigned_rotated : PlaneForm::plain;
}

// The geometry of shortened elements.
[[nodiscard]] inline ExponentGeometry exponent_geometry(const ShortFloats& floats, bool has_signs) noexcept {
  return {.element_bytes = element_size(floats.dtype),
          .mantissa_bits = mantissa_bits_of(floats.dtype),
          .zero_bits = floats.zero_bits,
          .has_signs = has_signs};
}

// The bytes of the low bits of all groups.
[[nodiscard]] constexpr std::size_t packed_low_bytes(std::size_t elements, unsigned low_bits) noexcept {
  const std::size_t last = elements % kGroupElements;
  return elements / kGroupElements * packed_row_bytes(kGroupRows, low_bits) +
         packed_row_bytes(divide_up(last, kGroupColumns), low_bits);
}

// The writer codes shorter chunks as planes: the states of the lanes would cost more than lanes save.
inline constexpr std::size_t kMinLanesBytes = std::size_t{128} << 10;

// Whether elements of this dtype can be coded in lanes. The topmost byte of an f16 contains mantissa bits, which make
// too many symbols.
[[nodiscard]] constexpr bool suits_lanes(DType dtype) noexcept { return dtype == DType::bf16 || dtype == DType::f32; }

}  // namespace bitsnap::codec
