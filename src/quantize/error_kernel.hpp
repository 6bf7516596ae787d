// Measuring what became of elements. One per CPU level; all give the same bits: element i of a part is added to lane
// i mod 16, and lanes are added in one order, each by operations of IEEE 754 on floats of eight bytes.
//
// Kernels: they allocate nothing and cannot fail. Buffers need no alignment. Precondition: the thread computes as a
// FloatMode says. Of floats of four bytes nothing overflows or is too small for a normal float of eight.
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
  // Adds F32 elements. Where `before` is not finite, bits are compared and nothing else; where it is, so is `after`.
  // Only the last call for a part may have a number that is not a multiple of 16.
  void (*add_errors)(const std::uint8_t* before, const std::uint8_t* after, std::size_t elements,
                     ErrorLanes& lanes) noexcept;

  // Elements of two bytes as the F32 that they are; NaNs stay as different from each other as they were.
  void (*widen)(bool is_bf16, const std::uint8_t* halves, std::size_t elements, std::uint8_t* floats) noexcept;

  static const ErrorKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::quantize
