// Shared by both sides of the codec gradient_step: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"
#include "codec/gradient_step/gradient_step_kernel.hpp"

namespace bitsnap::codec {

// How the numbers are stored. On disk: never change or reuse.
enum class GradientNumbers : std::uint8_t {
  bf16 = 0,  // a payload of another codec for BF16 elements
  f32 = 1,   // the same for F32 elements
  sums = 2,  // F32 elements: such a payload of the upper halves, and the lower halves as values by class
};

// Of sums: the size of the upper halves, and the top exponent.
inline constexpr std::size_t kSumsHeaderBytes = sizeof(std::uint32_t) + 1;

// On disk: never change. Bit of the first byte, beside the form: elements that do not follow come after the numbers.
inline constexpr std::uint8_t kGradientExceptions = 0x80;

// The form, how the numbers are stored and with which codec, three constants and a size.
inline constexpr std::size_t kGradientHeaderBytes = 3 + 3 * sizeof(float) + sizeof(std::uint32_t);

[[nodiscard]] constexpr DType dtype_of(GradientNumbers numbers) noexcept {
  return numbers == GradientNumbers::bf16 ? DType::bf16 : DType::f32;
}

// Computes the elements of a chunk from their bases and their numbers.
void add_gradient(GradientForm form, const GradientConstants& constants, ConstByteSpan base, GradientNumbers kind,
                  ConstByteSpan numbers, ByteSpan out) noexcept;

// The form, the significant bits and four constants of a second moment.
inline constexpr std::size_t kSquareHeaderBytes = 2 + 4 * sizeof(float);

// Whether these are the inputs of a second moment: itself and the first moment before, and the first moment after.
[[nodiscard]] bool are_of_square(std::span<const Input> inputs) noexcept;

// Computes second moments. Precondition: are_of_square(inputs).
void add_squares(std::span<const Input> inputs, const SquareConstants& constants, ByteSpan out) noexcept;

// How an average of weights follows from itself and the weights, which are its numbers.
struct AverageConstants {
  GradientForm form = GradientForm::lerp_fused;
  float keep = 1;
  float gain = 0;
};

// The form, its operations and two constants of an average.
inline constexpr std::size_t kAverageHeaderBytes = 2 + 2 * sizeof(float);

// Whether these are the inputs of an average: itself before, and the weights after.
[[nodiscard]] bool are_of_average(std::span<const Input> inputs) noexcept;

// Computes averages. Precondition: are_of_average(inputs).
void add_average(std::span<const Input> inputs, const AverageConstants& constants, ByteSpan out) noexcept;

}  // namespace bitsnap::codec
