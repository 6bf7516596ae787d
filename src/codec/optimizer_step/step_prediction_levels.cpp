// Loops that compilers vectorize at each CPU level.

#include "codec/optimizer_step/step_prediction_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

// The bits of NaNs differ between machines, so the base replaces a NaN.
inline void put_prediction(float predicted, const std::uint8_t* base, std::uint8_t* out, std::size_t i) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, predicted);
  const auto own = load_at<std::uint32_t>(base, i);
  store_at(out, i, (bits & 0x7fffffff) > 0x7f800000 ? own : bits);
}

inline void predict_second_moment(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                                  std::uint8_t* __restrict out) noexcept {
  const auto [keep, gain, rate] = constants;
  const auto [base, before, after] = in;
  for (std::size_t i = 0; i < elements; ++i) {
    const float moment = load_at<float>(before, i);
    const float gradient = (load_at<float>(after, i) - moment) / rate + moment;
    put_prediction(load_at<float>(base, i) * keep + gain * gradient * gradient, base, out, i);
  }
}

inline void predict_adam(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                         std::uint8_t* __restrict out) noexcept {
  const auto [keep, step, epsilon] = constants;
  const auto [base, moment, square] = in;
  for (std::size_t i = 0; i < elements; ++i) {
    const float root = __builtin_sqrtf(load_at<float>(square, i)) + epsilon;
    put_prediction(load_at<float>(base, i) * keep - step * load_at<float>(moment, i) / root, base, out, i);
  }
}

inline void predict_momentum(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                             std::uint8_t* __restrict out) noexcept {
  const float keep = constants.keep;
  const float step = constants.step;
  for (std::size_t i = 0; i < elements; ++i) {
    put_prediction(load_at<float>(in.base, i) * keep - step * load_at<float>(in.first, i), in.base, out, i);
  }
}

void predict(StepForm form, const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
             std::uint8_t* out) noexcept {
  switch (form) {
    case StepForm::second_moment: return predict_second_moment(inputs, elements, constants, out);
    case StepForm::adam: return predict_adam(inputs, elements, constants, out);
    case StepForm::momentum: return predict_momentum(inputs, elements, constants, out);
  }
}

}  // namespace

constinit const StepPredictionKernels StepPredictionKernels::BITSNAP_KERNEL_LEVEL = {codec::predict};

}  // namespace bitsnap::codec
