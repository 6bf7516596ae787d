// Rounding to fewer bits of the mantissa. One per CPU level; all give the same bits, by arithmetic on integers alone,
// so that no mode of the processor counts.
//
// Kernels: they allocate nothing and cannot fail. Buffers hold as many elements as the arguments say, need no
// alignment, and must not overlap. A call has at most 2^15 elements. `kept` is less than the mantissa bits of the
// dtype.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::quantize {

enum class MantissaFormat : std::uint8_t { f32, bf16, f16 };

struct RoundMantissaKernels {
  // To the nearest with `kept` bits of mantissa. Returns how many were taken toward zero where the nearest is infinite.
  std::size_t (*round_mantissa)(MantissaFormat format, const std::uint8_t* from, std::size_t elements, unsigned kept,
                                std::uint8_t* to) noexcept;

  // For F32 that were rounded (`from` to `to`), and the weights of two bytes that they had and have: where the weights
  // differ, `to` becomes the other of the two neighbours with `kept` bits, or `from` itself if that one is infinite.
  // Returns how many became the other one.
  std::size_t (*keep_weights)(const std::uint8_t* from, const std::uint8_t* had, const std::uint8_t* have,
                              std::size_t elements, unsigned kept, std::uint8_t* to) noexcept;

  static const RoundMantissaKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::quantize
