// What both sides of the codec scaled_by agree on: spec.md.
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
inline constexpr std::uint8_t kScaledFromBase = 1;  // integers are expected to be a share of the base's
inline constexpr std::uint8_t kScaledPlanes = 2;    // values stand in byte planes, not in lanes

inline constexpr float kScaledShareUnit = 256;  // what a share is counted in

// Form, a, b and the number of exceptions; and the share, where there is a base.
[[nodiscard]] constexpr std::size_t scaled_header_bytes(bool has_base) noexcept {
  return 1 + 2 * sizeof(float) + (has_base ? 1 : 0) + sizeof(std::uint32_t);
}

// Elements that are computed, coded and used while they are in the cache. A multiple of a step of the lanes.
inline constexpr std::size_t kScaledPart = 2048;
static_assert(kScaledPart % entropy::kRansStepElements == 0);

// Whether elements can be multiples of that: both numbers are finite and have no sign.
[[nodiscard]] constexpr bool is_lattice_scale(const LatticeScale& scale) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  return std::bit_cast<std::uint32_t>(scale.a) < kInfinity && std::bit_cast<std::uint32_t>(scale.b) < kInfinity;
}

// The integers that are expected of a chunk's elements, part by part.
class ExpectedMultiples {
 public:
  // `share` is that of the base in units of 1 / 256; chunks without a base have none.
  ExpectedMultiples(std::span<const Input> inputs, const LatticeScale& scale, std::uint8_t share) noexcept
      : inputs_(inputs), scale_(scale), share_(static_cast<float>(share) / kScaledShareUnit) {}

  // Of `count` elements from `first` on. Precondition: the thread computes as a FloatMode says.
  void fill(std::size_t first, std::size_t count, std::int16_t* expected) const noexcept;

 private:
  std::span<const Input> inputs_;
  LatticeScale scale_;
  float share_;
};

// The square beside the element of that number, of which the chunk's last input is.
[[nodiscard]] inline const std::uint8_t* squares_at(std::span<const Input> inputs, std::size_t element) noexcept {
  return reinterpret_cast<const std::uint8_t*>(inputs.back().bytes.data()) + element * sizeof(float);
}

}  // namespace bitsnap::codec
