// Kernels: floats to deltas from their base, and back: spec.md, "Deltas".
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

inline constexpr std::uint16_t kMostDeltas = 0xffff;
inline constexpr std::uint8_t kNoDirect = 32;  // no context is measured directly

struct DeltaGeometry {
  std::size_t element_bytes = 0;  // 1, 2 or 4
  unsigned mantissa_bits = 0;
  std::uint8_t exponent_mask = 0;
  std::uint8_t most_finite = 0;    // the largest exponent of finite numbers; infinities and NaNs may have the one above
  std::uint8_t top = 0;            // the exponent with context 0, which larger exponents share
  std::uint8_t last_context = 31;  // the context of exponents this far below the top, or further
  std::uint8_t first_direct = kNoDirect;  // contexts from this one on are measured from the top instead of the base
  // lowest bytes of the measure of a four-byte element that are stored separately: 0, 1 or 2
  std::size_t low_bytes = 0;
  std::uint32_t factor = 0;  // of an F32: the floor is the base times this; 0: no floors
};

struct OrdinalDeltaKernels {
  // The context of each element: the distance of its base's exponent from the top.
  void (*delta_contexts)(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry,
                         std::uint8_t* contexts) noexcept;

  // The measure (spec.md) of each element without its low bytes, which go to `low`. Measures of kMostDeltas or more
  // become kMostDeltas.
  void (*measure_deltas)(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                         const DeltaGeometry& geometry, std::uint16_t* values, std::uint8_t* low) noexcept;

  // The element of each measure. Excess bits are cut off; kMostDeltas is decoded like any other value.
  void (*move_deltas)(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low,
                      std::size_t elements, const DeltaGeometry& geometry, std::uint8_t* out) noexcept;

  static const OrdinalDeltaKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
