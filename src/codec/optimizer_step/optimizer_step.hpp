// Shared by both sides of the codec optimizer_step: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"
#include "codec/optimizer_step/step_prediction_kernel.hpp"

namespace bitsnap::codec {

// The form and its constants.
[[nodiscard]] constexpr std::size_t step_header_bytes(StepForm form) noexcept {
  return 1 + (form == StepForm::rounded_adam ? 4 : 3) * sizeof(float);
}
inline constexpr std::size_t kMostStepHeaderBytes = step_header_bytes(StepForm::rounded_adam);

// Whether chunks of this dtype with these inputs can have this form.
[[nodiscard]] bool takes_inputs(StepForm form, DType dtype, std::span<const Input> inputs) noexcept;

// Predicts the elements of a chunk with these inputs. `out` has the chunk's size. Precondition: takes_inputs(form,
// dtype, inputs) with the dtype of the inputs.
void predict_step(StepForm form, std::span<const Input> inputs, const StepConstants& constants, ByteSpan out) noexcept;

}  // namespace bitsnap::codec
