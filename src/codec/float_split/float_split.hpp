// What both sides of the codec float_split know of its payload. spec.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/plane_groups.hpp"

namespace bitsnap::codec {

// The first byte of the payload: how the topmost byte is coded, and where the sign of the elements is. On disk: never
// change or reuse.
enum class FloatSplitForm : std::uint8_t {
  planes = 0,           // byte planes of the elements as they are
  planes_rotated = 1,   // of the elements rotated left by one bit: the sign is below the mantissa
  planes_unsigned = 2,  // of the elements shifted left by one bit: no sign bit is set
  lanes = 3,            // split elements, as they are
  lanes_rotated = 4,    // split elements, rotated left by one bit
};

inline constexpr std::size_t kFloatSplitHeaderBytes = 1;

// The last form that elements of so many bytes can have.
[[nodiscard]] constexpr FloatSplitForm last_form(std::size_t element_bytes) noexcept {
  if (element_bytes == 1) return FloatSplitForm::planes;
  return element_bytes == 8 ? FloatSplitForm::planes_unsigned : FloatSplitForm::lanes_rotated;
}

[[nodiscard]] constexpr bool is_lanes(FloatSplitForm form) noexcept { return form >= FloatSplitForm::lanes; }

// Precondition: the form is one of planes.
[[nodiscard]] constexpr PlaneForm plane_form(FloatSplitForm form) noexcept {
  if (form == FloatSplitForm::planes_rotated) return PlaneForm::rotated;
  return form == FloatSplitForm::planes_unsigned ? PlaneForm::unsigned_rotated : PlaneForm::plain;
}

}  // namespace bitsnap::codec
