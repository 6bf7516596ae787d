// What both sides of the codec float_split know of its payload. spec.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// The first byte of the payload. On disk: never change or reuse.
enum class SignPlace : std::uint8_t {
  top = 0,     // elements as they are
  bottom = 1,  // elements rotated left by one bit, which moves the sign below the mantissa
};

inline constexpr std::size_t kFloatSplitHeaderBytes = 1;

}  // namespace bitsnap::codec
