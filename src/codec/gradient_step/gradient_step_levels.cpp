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

}  // namespace

constinit const GradientStepKernels GradientStepKernels::BITSNAP_KERNEL_LEVEL = {codec::add_bf16, codec::add_f32};

}  // namespace bitsnap::codec
