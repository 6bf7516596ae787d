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
// The form of a second moment, whose gradient follows from the first moments before and after.
inline constexpr std::uint8_t kSquareForm = 5;
// The form of an average of weights, which are its numbers.
inline constexpr std::uint8_t kAverageForm = 6;

// The constants of a step. The gradient of an element is scale * q.
struct GradientConstants {
  float keep = 1;   // k: factor of the base; without effect on lerp
  float gain = 1;   // s: factor of the gradient
  float scale = 1;  // c: factor of the stored number
};

struct SquareConstants {
  float keep = 1;     // k: factor of the base
  float gain = 0;     // s: factor of the square
  float rate = 1;     // e: factor of the gradient in the first moment
  float scale = 1;    // c: as above
  unsigned bits = 8;  // significant bits of the numbers, 1 to 24
};

// A second moment, and the first moments before and after.
struct SquareInputs {
  const std::uint8_t* base = nullptr;
  const std::uint8_t* before = nullptr;
  const std::uint8_t* after = nullptr;
};

struct GradientStepKernels {
  // Computes elements from their bases and the stored numbers. If the result is a NaN, it is the base.
  void (*add_bf16)(GradientForm form, const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
                   const GradientConstants& constants, std::uint8_t* out) noexcept;
  void (*add_f32)(GradientForm form, const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
                  const GradientConstants& constants, std::uint8_t* out) noexcept;

  // The contexts of the lower halves of numbers: how far the exponents of the upper halves are below the top, 0 to 31.
  void (*half_contexts)(const std::uint8_t* upper, std::size_t count, std::uint8_t top,
                        std::uint8_t* contexts) noexcept;

  // Puts numbers together from their halves. The bits of the lower halves are in reverse order.
  void (*join_halves)(const std::uint8_t* upper, const std::uint16_t* lower, std::size_t count,
                      std::uint8_t* numbers) noexcept;

  // Computes second moments. If the result is a NaN, it is the base.
  void (*add_squares)(const SquareInputs& inputs, std::size_t elements, const SquareConstants& constants,
                      std::uint8_t* out) noexcept;

  static const GradientStepKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
