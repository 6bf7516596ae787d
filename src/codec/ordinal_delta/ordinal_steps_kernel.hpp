// Between floats and the steps that they moved since their base: spec.md, "Steps". One per CPU level; all give the same
// numbers.
//
// Kernels: they allocate nothing and cannot fail. Buffers hold what the arguments say and need no alignment; outputs
// must not overlap inputs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

inline constexpr std::uint16_t kMostSteps = 0xffff;
inline constexpr std::uint8_t kNoDirect = 32;  // no context is measured from the top

struct StepGeometry {
  std::size_t element_bytes = 0;  // 1, 2 or 4
  unsigned mantissa_bits = 0;
  std::uint8_t exponent_mask = 0;
  std::uint8_t most_finite = 0;    // the largest exponent that numbers have: infinities and NaNs may have one above
  std::uint8_t top = 0;            // the exponent whose context is 0, as is that of those above it
  std::uint8_t last_context = 31;  // of this exponent distance and those beyond
  std::uint8_t first_direct =
      kNoDirect;              // elements of this context and those beyond are measured from the top, not the base
  std::size_t low_bytes = 0;  // of an element of four bytes, that many of the measure stand apart: 0, 1 or 2
  std::uint32_t factor = 0;   // of an F32, what elements are measured above is the base times this; 0: they are not
};

struct OrdinalStepKernels {
  // The context of each element: how far its exponent is below the top.
  void (*step_contexts)(const std::uint8_t* base, std::size_t elements, const StepGeometry& geometry,
                        std::uint8_t* contexts) noexcept;

  // What each element is measured by (its measure, spec.md) without its low bytes, which `low` gets, and kMostSteps
  // where it is as much or more.
  void (*measure_steps)(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                        const StepGeometry& geometry, std::uint16_t* values, std::uint8_t* low) noexcept;

  // The element of that measure. What does not fit an element is cut off; kMostSteps has no meaning of its own here.
  void (*move_steps)(const std::uint8_t* base, const std::uint16_t* values, const std::uint8_t* low,
                     std::size_t elements, const StepGeometry& geometry, std::uint8_t* out) noexcept;

  static const OrdinalStepKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
