// Kernels that find the gradient between two moments. Each operation is an IEEE 754 operation on F32 in a fixed order.
// Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/gradient_step/gradient_step_kernel.hpp"

namespace bitsnap::codec {

// A test whether numbers are multiples of a common one, by their mantissas.
struct MultiplesTest {
  float factor = 1;     // the mantissas' factor: the quotient of 1 and the common mantissa
  float units = 128;    // a multiple has this many units from 1 to 2; a power of two, at most 2^12
  float tolerance = 0;  // in units
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

  // How many of the mantissas, from 1 to 2, are nearly multiples.
  std::size_t (*count_multiples)(const float* mantissas, std::size_t count, const MultiplesTest& test) noexcept;

  static const GradientEncodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
