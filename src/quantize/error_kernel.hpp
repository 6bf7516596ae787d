// Kernels that measure the errors of quantized elements. Element i of a part is added to lane i mod 16, and lanes are
// added in order, with IEEE 754 operations on F64; sums of F32 errors neither overflow nor underflow. Precondition: a
// FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quantize/lanes.hpp"

namespace bitsnap::quantize {

struct ErrorLanes {
  double max_square[kLanes] = {};
  double max_relative[kLanes] = {};
  double sum_square[kLanes] = {};
  double sum_relative[kLanes] = {};
  std::uint64_t changed = 0;
  std::uint64_t finite = 0;
  std::uint64_t nonzero = 0;
};

struct ErrorKernels {
  // Adds F32 elements. If `before` is not finite, only the bits are compared; if it is finite, `after` must be. Only
  // the last call for a part may have a number of elements that is not a multiple of 16.
  void (*add_errors)(const std::uint8_t* before, const std::uint8_t* after, std::size_t elements,
                     ErrorLanes& lanes) noexcept;

  // Widens BF16 or F16 to F32; different NaNs stay different.
  void (*widen)(bool is_bf16, const std::uint8_t* halves, std::size_t elements, std::uint8_t* floats) noexcept;

  static const ErrorKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::quantize
