// Shared by both sides of the codec scaled_by: spec.md.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"
#include "codec/scaled_by/lattice_kernel.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// On disk: never change. Bits of the first byte.
inline constexpr std::uint8_t kScaledFromBase = 1;  // integers are predicted as a share of the base's integers
inline constexpr std::uint8_t kScaledPlanes = 2;    // values are in byte planes instead of lanes

inline constexpr float kScaledShareUnit = 256;  // a share is a multiple of 1 / 256

// Form, a, b and the number of exceptions; and the share if there is a base.
[[nodiscard]] constexpr std::size_t scaled_header_bytes(bool has_base) noexcept {
  return 1 + 2 * sizeof(float) + (has_base ? 1 : 0) + sizeof(std::uint32_t);
}

// Elements that are processed together so that they stay in the cache. A multiple of a round of the lane coder.
inline constexpr std::size_t kScaledPart = 2048;
static_assert(kScaledPart % entropy::kRansRoundElements == 0);

// Whether both numbers are finite and without sign.
[[nodiscard]] constexpr bool is_lattice_scale(const LatticeScale& scale) noexcept {
  constexpr std::uint32_t kInfiniteBits = 0x7f800000;
  return std::bit_cast<std::uint32_t>(scale.a) < kInfiniteBits && std::bit_cast<std::uint32_t>(scale.b) < kInfiniteBits;
}

// The predicted integers of a chunk's elements, part by part.
class ExpectedMultiples {
 public:
  // `share` is in units of 1 / 256; it has no effect without a base.
  ExpectedMultiples(std::span<const Input> inputs, const LatticeScale& scale, std::uint8_t share) noexcept
      : inputs_(inputs), scale_(scale), share_(static_cast<float>(share) / kScaledShareUnit) {}

  // Predicts `count` elements from `first` on. Precondition: a FloatMode is active.
  void fill(std::size_t first, std::size_t count, std::int16_t* expected) const noexcept;

 private:
  std::span<const Input> inputs_;
  LatticeScale scale_;
  float share_;
};

// The second moment of the element, from the chunk's last input.
[[nodiscard]] inline const std::uint8_t* squares_at(std::span<const Input> inputs, std::size_t element) noexcept {
  return reinterpret_cast<const std::uint8_t*>(inputs.back().bytes.data()) + element * sizeof(float);
}

}  // namespace bitsnap::codec
