// Loops that compilers vectorize at each CPU level.

#include "codec/gradient_step/gradient_step_kernel.hpp"

#include "codec/gradient_step/gradient_arithmetic.hpp"

namespace bitsnap::codec {
namespace {

inline float number_at_bf16(const std::uint8_t* numbers, std::size_t i) noexcept {
  return float_of(static_cast<std::uint32_t>(load_at<std::uint16_t>(numbers, i)) << 16);
}

template <GradientForm kForm>
inline void add_bf16_as(const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
                        const GradientConstants& constants, std::uint8_t* __restrict out) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    store_at(out, i, moved_bits<kForm>(load_at<float>(base, i), number_at_bf16(numbers, i), constants));
  }
}

template <GradientForm kForm>
inline void add_f32_as(const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
                       const GradientConstants& constants, std::uint8_t* __restrict out) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    store_at(out, i, moved_bits<kForm>(load_at<float>(base, i), load_at<float>(numbers, i), constants));
  }
}

void add_bf16(GradientForm form, const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
              const GradientConstants& constants, std::uint8_t* out) noexcept {
  by_form(form, [=, &constants]<GradientForm kForm>() { add_bf16_as<kForm>(base, numbers, elements, constants, out); });
}

void add_f32(GradientForm form, const std::uint8_t* base, const std::uint8_t* numbers, std::size_t elements,
             const GradientConstants& constants, std::uint8_t* out) noexcept {
  by_form(form, [=, &constants]<GradientForm kForm>() { add_f32_as<kForm>(base, numbers, elements, constants, out); });
}

void half_contexts(const std::uint8_t* upper, std::size_t count, std::uint8_t top,
                   std::uint8_t* __restrict contexts) noexcept {
  constexpr std::int32_t kMost = 31;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t below = top - (load_at<std::uint16_t>(upper, i) >> 7 & 0xff);
    const std::int32_t least = below < 0 ? 0 : below;
    contexts[i] = static_cast<std::uint8_t>(least < kMost ? least : kMost);
  }
}

void join_halves(const std::uint8_t* upper, const std::uint16_t* lower, std::size_t count,
                 std::uint8_t* __restrict numbers) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    store_at(numbers, i, std::uint32_t{load_at<std::uint16_t>(upper, i)} << 16 | reversed_16(lower[i]));
  }
}

void add_squares(const SquareInputs& inputs, std::size_t elements, const SquareConstants& constants,
                 std::uint8_t* __restrict out) noexcept {
  const auto [keep, gain, rate, scale, bits] = constants;
  const Rounding rounding(bits);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto before = load_at<float>(inputs.before, i);
    const float gradient = (load_at<float>(inputs.after, i) - before) / rate + before;
    const float exact = scale * rounding.of(gradient / scale);
    const auto base = load_at<float>(inputs.base, i);
    const std::uint32_t sum = bits_of(fused(gain * exact, exact, keep * base));
    store_at(out, i, (sum & 0x7fffffff) > kInfinityBits ? bits_of(base) : sum);
  }
}

}  // namespace

constinit const GradientStepKernels GradientStepKernels::BITSNAP_KERNEL_LEVEL = {
    codec::add_bf16, codec::add_f32, codec::half_contexts, codec::join_halves, codec::add_squares};

}  // namespace bitsnap::codec
