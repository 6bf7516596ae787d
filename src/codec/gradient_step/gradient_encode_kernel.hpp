// Kernels that find the gradient between two moments. Each operation is an IEEE 754 operation on F32 in a fixed order.
// Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/gradient_step/gradient_step_kernel.hpp"

namespace bitsnap::codec {

// A search for the number of which numbers are multiples, by their mantissas from 1 to 2.
struct MultiplesSearch {
  float reference = 1;  // the mantissa of one of them, which is k units of the common number
  unsigned units =
      128;  // of the common number, from 1 to 2; a power of two from 64 to 4,096. k is less than twice that
  float tolerance = 0.0F;  // in units
};

// Candidates of which fewer than two thirds of the first numbers are multiples are not looked at.
inline constexpr std::size_t kGlanced = 9;

struct MultiplesFound {
  unsigned k = 0;
  std::uint32_t multiples = 0;  // with this k, the least of the best
};

struct GradientEncodeKernels {
  // Finds numbers of `bits` significant bits, 1 to 24, from which the elements follow; they end in 24 - bits zeros.
  // Returns how many elements follow exactly.
  std::size_t (*find)(GradientForm form, const std::uint8_t* elements, const std::uint8_t* base, std::size_t count,
                      const GradientConstants& constants, unsigned bits, std::uint8_t* numbers) noexcept;

  // Finds for each element the number of the fewest significant bits from which it follows.
  std::size_t (*find_shortest)(GradientForm form, const std::uint8_t* elements, const std::uint8_t* base,
                               std::size_t count, const GradientConstants& constants, std::uint8_t* numbers) noexcept;

  // The upper halves of F32 numbers, which are their bits as BF16 if the lower halves are 0.
  void (*upper_halves)(const std::uint8_t* numbers, std::size_t count, std::uint8_t* halves) noexcept;

  // The same, and the lower halves with their bits in reverse order. Returns the greatest exponent.
  std::uint8_t (*split_halves)(const std::uint8_t* numbers, std::size_t count, std::uint8_t* upper,
                               std::uint16_t* lower) noexcept;

  MultiplesFound (*search_multiples)(const float* mantissas, std::size_t count, const MultiplesSearch& search) noexcept;

  static const GradientEncodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
