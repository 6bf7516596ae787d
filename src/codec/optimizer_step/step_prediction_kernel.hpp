// Kernels that compute an optimizer step: spec.md. Each operation is an IEEE 754 operation on F32 in a fixed order; for
// BF16, the spec says which results are rounded to BF16. Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// On disk: never change or reuse.
enum class StepForm : std::uint8_t {
  second_moment = 0,  // from its base, and the first moment before and after
  adam = 1,           // a parameter, from its base and both moments after
  momentum = 2,       // a parameter, from its base and the first moment after
  // Only BF16: as above, with every tensor that a framework makes in between rounded.
  rounded_second_moment = 3,
  rounded_adam = 4,
};
inline constexpr StepForm kStepForms[] = {StepForm::second_moment, StepForm::adam, StepForm::momentum,
                                          StepForm::rounded_second_moment, StepForm::rounded_adam};

// The constants of a step.
struct StepConstants {
  float keep = 1;     // factor of the base; for second_moment beta2
  float step = 0;     // factor of the change; for second_moment 1 - beta2
  float other = 0;    // for second_moment 1 - beta1, for adam the epsilon added to the root, for momentum unused
  float divisor = 1;  // of the root; only for rounded_adam
};

// The element's base, and the other inputs in order.
struct StepInputs {
  const std::uint8_t* base = nullptr;
  const std::uint8_t* first = nullptr;
  const std::uint8_t* second = nullptr;  // nullptr for momentum
};

struct StepPredictionKernels {
  using Predict = void (*)(StepForm form, const StepInputs& inputs, std::size_t elements,
                           const StepConstants& constants, std::uint8_t* out) noexcept;
  Predict predict_f32;
  Predict predict_bf16;

  static const StepPredictionKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
