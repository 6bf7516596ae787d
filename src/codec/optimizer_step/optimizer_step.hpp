// Shared by both sides of the codec optimizer_step: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"
#include "codec/optimizer_step/step_prediction_kernel.hpp"

namespace bitsnap::codec {

// The form and three constants.
inline constexpr std::size_t kOptimizerStepHeaderBytes = 1 + 3 * sizeof(float);

// Whether chunks with these inputs can have this form.
[[nodiscard]] bool takes_inputs(StepForm form, std::span<const Input> inputs) noexcept;

// Predicts the elements of a chunk with these inputs. `out` has the chunk's size. Precondition: takes_inputs(form,
// inputs).
void predict_step(StepForm form, std::span<const Input> inputs, const StepConstants& constants, ByteSpan out) noexcept;

}  // namespace bitsnap::codec
