// What both sides of the codec float_split know of its payload. spec.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/plane_groups.hpp"

namespace bitsnap::codec {

// The first byte of the payload: where the sign of the elements is. On disk: never change or reuse.
enum class SignPlace : std::uint8_t {
  top = 0,     // in its place: the elements are as they are
  bottom = 1,  // below the mantissa: the elements are rotated left by one bit
  none = 2,    // nowhere: no sign bit is set, and the elements are shifted left by one bit
};

inline constexpr std::size_t kFloatSplitHeaderBytes = 1;

[[nodiscard]] constexpr PlaneForm plane_form(SignPlace place) noexcept {
  switch (place) {
    case SignPlace::top: return PlaneForm::plain;
    case SignPlace::bottom: return PlaneForm::rotated;
    case SignPlace::none: return PlaneForm::unsigned_rotated;
  }
  return PlaneForm::plain;
}

}  // namespace bitsnap::codec
