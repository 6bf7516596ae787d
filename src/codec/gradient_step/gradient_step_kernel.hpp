// Kernels that add a gradient to a moment: spec.md. Each operation is an IEEE 754 operation
// on F32 in a fixed order. Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// How an element follows from its base x and the gradient g. On disk: never change or reuse.
enum class GradientForm : std::uint8_t {
  lerp_fused = 0,     // fma(s, g - x, x)
  lerp = 1,           // x + s * (g - x)
  add_fused = 2,      // fma(s, g, k * x)
  decay_fused = 3,    // fma(k, x, s * g)
  decay_and_add = 4,  // k * x + s * g
};
inline constexpr std::size_t kGradientForms = 5;

// The constants of a step. The gradient of an element is scale * q.
struct GradientConstants {
  float keep = 1;   // k: factor of the base; without effect on lerp
  float gain = 1;   // s: factor of the gradient
  float scale = 1;  // c: factor of the stored number
};

struct GradientStepKernels {
  // Computes elements from their bases and the stored numbers. If the result is a NaN, it is the base.
  void (*add_bf16)(GradientForm form, const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
                   const GradientConstants& constants, std::uint8_t* out) noexcept;
  void (*add_f32)(GradientForm form, const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
                  const GradientConstants& constants, std::uint8_t* out) noexcept;

  static const GradientStepKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
