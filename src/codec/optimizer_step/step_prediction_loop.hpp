// The loops of step_prediction_kernel.hpp, one element after another, for the compiler to make vectors of at each CPU
// level. Everything has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/optimizer_step/step_prediction_kernel.hpp"

namespace bitsnap::codec {
namespace {

inline float float_at(const std::uint8_t* floats, std::size_t i) noexcept {
  float value;
  __builtin_memcpy(&value, floats + 4 * i, sizeof value);
  return value;
}

// What is no number is not the same on all machines: the base stands in for it.
inline void put_prediction(float predicted, const std::uint8_t* base, std::uint8_t* out, std::size_t i) noexcept {
  std::uint32_t bits;
  std::uint32_t own;
  __builtin_memcpy(&bits, &predicted, sizeof bits);
  __builtin_memcpy(&own, base + 4 * i, sizeof own);
  bits = (bits & 0x7fffffff) > 0x7f800000 ? own : bits;
  __builtin_memcpy(out + 4 * i, &bits, sizeof bits);
}

inline void predict_second_moment(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                                  std::uint8_t* __restrict out) noexcept {
  const auto [keep, gain, rate] = constants;
  const auto [base, before, after] = in;
  for (std::size_t i = 0; i < elements; ++i) {
    const float moment = float_at(before, i);
    const float gradient = (float_at(after, i) - moment) / rate + moment;
    put_prediction(float_at(base, i) * keep + gain * gradient * gradient, base, out, i);
  }
}

inline void predict_adam(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                         std::uint8_t* __restrict out) noexcept {
  const auto [keep, step, epsilon] = constants;
  const auto [base, moment, square] = in;
  for (std::size_t i = 0; i < elements; ++i) {
    const float root = __builtin_sqrtf(float_at(square, i)) + epsilon;
    put_prediction(float_at(base, i) * keep - step * float_at(moment, i) / root, base, out, i);
  }
}

inline void predict_momentum(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                             std::uint8_t* __restrict out) noexcept {
  const float keep = constants.keep;
  const float step = constants.step;
  for (std::size_t i = 0; i < elements; ++i) {
    put_prediction(float_at(in.base, i) * keep - step * float_at(in.first, i), in.base, out, i);
  }
}

inline void predict_by_form(StepForm form, const StepInputs& inputs, std::size_t elements,
                            const StepConstants& constants, std::uint8_t* out) noexcept {
  switch (form) {
    case StepForm::second_moment: return predict_second_moment(inputs, elements, constants, out);
    case StepForm::adam: return predict_adam(inputs, elements, constants, out);
    case StepForm::momentum: return predict_momentum(inputs, elements, constants, out);
  }
}

}  // namespace
}  // namespace bitsnap::codec
