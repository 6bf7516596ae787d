// Finds the constants of an optimizer step on BF16 elements.
//
// The inputs of such a step are exact, and its results are rounded to 8 significant bits, so that errors are no small
// noise: most parameters do not move at all. But each element says in which interval a constant lies. The results
// depend on the arguments alone: all operations are IEEE 754 operations.
#pragma once

#include <cstddef>
#include <optional>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "codec/optimizer_step/fit_step_encode.hpp"
#include "codec/optimizer_step/step_prediction_kernel.hpp"
#include "codec/optimizer_step/step_sample_encode.hpp"

namespace bitsnap::codec {

struct FittedConstants {
  StepConstants constants = {};
  std::size_t bits_away = 0;  // of the sample
};

// `start`: what a smaller sample gave; nullopt searches among all constants. Precondition: the form takes the inputs of
// the sample, which is not empty, and a FloatMode is active.
[[nodiscard]] Result<FittedConstants> fit_rounded_step(StepForm form, const StepSample& sample,
                                                       const SampledStep& floats,
                                                       const std::optional<StepConstants>& start, Scratch& scratch);

}  // namespace bitsnap::codec
