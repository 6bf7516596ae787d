// What a step of an optimizer makes of a state, for the baseline of every machine.
#include "codec/optimizer_step/step_prediction_kernel.hpp"

#include "codec/optimizer_step/step_prediction_loop.hpp"

namespace bitsnap::codec {

void predict_step_scalar(StepForm form, const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
                         std::uint8_t* out) noexcept {
  predict_by_form(form, inputs, elements, constants, out);
}

}  // namespace bitsnap::codec
