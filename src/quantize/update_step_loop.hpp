// The loop of update_step_kernel.hpp, one element after another, for the compiler to make vectors of at each CPU level.
// Everything has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/scaled_by/lattice_arithmetic.hpp"
#include "quantize/update_step_kernel.hpp"

namespace bitsnap::quantize {
namespace {

// Masks: all bits where it is so, and none where not. Branches, and choices of the language, keep compilers from making
// vectors.
inline std::uint32_t is_below(std::uint32_t one, std::uint32_t other) noexcept {  // both below 2^31
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(one - other) >> 31);
}

// Of the bits of a float: that it is finite, has no sign, and is not less than that of the bits `least`.
inline std::uint32_t is_from(std::uint32_t least, std::uint32_t bits) noexcept {
  const std::uint32_t magnitude = bits & 0x7fffffff;
  return is_below(bits >> 31, 1) & is_below(least - 1, magnitude) & is_below(magnitude, 0x7f800000);
}

inline void round_loop(std::uint8_t* __restrict moments, const std::uint8_t* __restrict squares, std::size_t elements,
                       const codec::LatticeScale& scale) noexcept {
  constexpr std::uint32_t kLeast = 1;
  constexpr std::uint32_t kLeastNormal = 0x00800000;
  const auto [a, b] = scale;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = codec::word_at(moments, i);
    const auto moment = codec::bits_as<float>(bits);
    const std::uint32_t square = codec::word_at(squares, i);
    const float own = codec::scale_of(codec::bits_as<float>(square), a, b);
    const float nearest = static_cast<float>(codec::nearest_integer(moment / own)) * own;
    const auto multiple = codec::bits_as<std::uint32_t>(nearest);
    const float away = moment - nearest;
    // That it is nearest is not taken for granted: it is none where the moment is no number or too many steps away.
    // Bits of floats without a sign order as the floats do.
    const std::uint32_t distance = codec::bits_as<std::uint32_t>(away) & 0x7fffffff;
    const std::uint32_t most = codec::bits_as<std::uint32_t>(0.75F * own) & 0x7fffffff;
    const std::uint32_t rounded =
        is_from(kLeast, square) & is_from(kLeastNormal, codec::bits_as<std::uint32_t>(own)) & ~is_below(most, distance);
    const std::uint32_t not_zero = is_below(0, bits & 0x7fffffff);
    const std::uint32_t out = ((multiple & rounded) | (bits & ~rounded)) & not_zero;
    __builtin_memcpy(moments + 4 * i, &out, sizeof out);
  }
}

}  // namespace
}  // namespace bitsnap::quantize
