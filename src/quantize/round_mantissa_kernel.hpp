// Kernels that round to fewer mantissa bits. They use integer arithmetic, which no floating-point mode affects. A call
// has at most 2^15 elements. `kept` is less than the mantissa bits of the dtype.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::quantize {

enum class MantissaFormat : std::uint8_t { f32, bf16, f16 };

struct RoundMantissaKernels {
  // Rounds to the nearest number with `kept` mantissa bits. Returns the number of elements rounded toward zero because
  // the nearest is infinite.
  std::size_t (*round_mantissa)(MantissaFormat format, const std::uint8_t* from, std::size_t elements, unsigned kept,
                                std::uint8_t* to) noexcept;

  // For F32 elements that were rounded (`from` to `to`), and their weights before and after: if the weights differ,
  // `to` becomes the other neighbour with `kept` bits, or `from` if that is infinite. Returns the number of elements
  // that became the other neighbour.
  std::size_t (*keep_weights)(const std::uint8_t* from, const std::uint8_t* had, const std::uint8_t* have,
                              std::size_t elements, unsigned kept, std::uint8_t* to) noexcept;

  static const RoundMantissaKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::quantize
