// What a step of an optimizer makes of a state: spec.md. One per CPU level; all give the same bits, as each operation
// is one of IEEE 754 on floats of four bytes, in a fixed order.
//
// Kernels: they allocate nothing and cannot fail. Buffers hold what the arguments say and need no alignment; `out` must
// not overlap the others. Precondition: the thread computes as a FloatMode says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// On disk: never change or reuse.
enum class StepForm : std::uint8_t {
  second_moment = 0,  // of its base, and of the first moment before and after
  adam = 1,           // a parameter of its base and both moments after
  momentum = 2,       // a parameter of its base and the first moment after
};
inline constexpr StepForm kStepForms[] = {StepForm::second_moment, StepForm::adam, StepForm::momentum};

// What of the hyperparameters a step needs.
struct StepConstants {
  float keep = 1;   // of the own base is left; of second_moment beta2
  float step = 0;   // what counts of the change; of second_moment 1 - beta2
  float other = 0;  // of second_moment 1 - beta1, of adam what is added to the root, of momentum nothing
};

// The own base, and the other inputs in their order.
struct StepInputs {
  const std::uint8_t* base = nullptr;
  const std::uint8_t* first = nullptr;
  const std::uint8_t* second = nullptr;  // nullptr for momentum
};

struct StepPredictionKernels {
  void (*predict)(StepForm form, const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
                  std::uint8_t* out) noexcept;

  static const StepPredictionKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
