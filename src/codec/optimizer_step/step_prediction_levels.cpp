// Loops that compilers vectorize at each CPU level.

#include "codec/optimizer_step/step_prediction_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

// Elements in memory, and the rounding of intermediate results. The bits of NaNs differ between machines, so that the
// base replaces a NaN.
struct F32Elements {
  static inline float load(const std::uint8_t* from, std::size_t i) noexcept { return load_at<float>(from, i); }
  static inline float rounded(float x) noexcept { return x; }
  static inline void put(float predicted, const std::uint8_t* base, std::uint8_t* out, std::size_t i) noexcept {
    const auto bits = __builtin_bit_cast(std::uint32_t, predicted);
    const auto own = load_at<std::uint32_t>(base, i);
    store_at(out, i, (bits & 0x7fffffff) > 0x7f800000 ? own : bits);
  }
};

struct Bf16Elements {
  static inline float load(const std::uint8_t* from, std::size_t i) noexcept {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(load_at<std::uint16_t>(from, i)) << 16);
  }
  // To the nearest, ties to even. A NaN remains one.
  static inline std::uint32_t rounded_bits(std::uint32_t bits) noexcept {
    const std::uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    return (bits & 0x7fffffff) > 0x7f800000 ? bits : nearest;
  }
  static inline float rounded(float x) noexcept {
    return __builtin_bit_cast(float, rounded_bits(__builtin_bit_cast(std::uint32_t, x)));
  }
  static inline void put(float predicted, const std::uint8_t* base, std::uint8_t* out, std::size_t i) noexcept {
    const auto bits = __builtin_bit_cast(std::uint32_t, predicted);
    const std::uint32_t own = load_at<std::uint16_t>(base, i);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    store_at(out, i, static_cast<std::uint16_t>(is_nan ? own : rounded_bits(bits) >> 16));
  }
};

template <typename Elements>
inline float gradient_at(const StepInputs& in, std::size_t i, float rate) noexcept {
  const float moment = Elements::load(in.first, i);
  return Elements::rounded((Elements::load(in.second, i) - moment) / rate + moment);
}

template <typename Elements, bool kRounded = false>
inline void predict_second_moment(const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
                                  std::uint8_t* __restrict out) noexcept {
  const auto [keep, gain, rate, unused] = constants;
  const StepInputs in = inputs;
  for (std::size_t i = 0; i < elements; ++i) {
    const float gradient = gradient_at<Elements>(in, i, rate);
    const float kept = Elements::load(in.base, i) * keep;
    Elements::put((kRounded ? Elements::rounded(kept) : kept) + gain * gradient * gradient, in.base, out, i);
  }
}

template <typename Elements>
inline void predict_adam(const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
                         std::uint8_t* __restrict out) noexcept {
  const auto [keep, step, epsilon, unused] = constants;
  const auto [base, moment, square] = inputs;
  for (std::size_t i = 0; i < elements; ++i) {
    const float root = __builtin_sqrtf(Elements::load(square, i)) + epsilon;
    Elements::put(Elements::load(base, i) * keep - step * Elements::load(moment, i) / root, base, out, i);
  }
}

template <typename Elements>
inline void predict_rounded_adam(const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
                                 std::uint8_t* __restrict out) noexcept {
  const auto [keep, step, epsilon, divisor] = constants;
  const auto [base, moment, square] = inputs;
  for (std::size_t i = 0; i < elements; ++i) {
    const float corrected = Elements::rounded(Elements::rounded(__builtin_sqrtf(Elements::load(square, i))) / divisor);
    const float root = Elements::rounded(corrected + epsilon);
    const float kept = Elements::rounded(Elements::load(base, i) * keep);
    Elements::put(kept - step * Elements::load(moment, i) / root, base, out, i);
  }
}

template <typename Elements>
inline void predict_momentum(const StepInputs& in, std::size_t elements, const StepConstants& constants,
                             std::uint8_t* __restrict out) noexcept {
  const float keep = constants.keep;
  const float step = constants.step;
  const std::uint8_t* const base = in.base;
  const std::uint8_t* const moment = in.first;
  for (std::size_t i = 0; i < elements; ++i) {
    Elements::put(Elements::load(base, i) * keep - step * Elements::load(moment, i), base, out, i);
  }
}

template <typename Elements>
void predict(StepForm form, const StepInputs& inputs, std::size_t elements, const StepConstants& constants,
             std::uint8_t* out) noexcept {
  switch (form) {
    case StepForm::second_moment: return predict_second_moment<Elements>(inputs, elements, constants, out);
    case StepForm::adam: return predict_adam<Elements>(inputs, elements, constants, out);
    case StepForm::momentum: return predict_momentum<Elements>(inputs, elements, constants, out);
    case StepForm::rounded_second_moment:
      return predict_second_moment<Elements, true>(inputs, elements, constants, out);
    case StepForm::rounded_adam: return predict_rounded_adam<Elements>(inputs, elements, constants, out);
  }
}

}  // namespace

constinit const StepPredictionKernels StepPredictionKernels::BITSNAP_KERNEL_LEVEL = {codec::predict<F32Elements>,
                                                                                     codec::predict<Bf16Elements>};

}  // namespace bitsnap::codec
