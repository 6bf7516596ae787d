// Between floats of four bytes and what they are rounded to: spec.md. One per CPU level; all give the same bits, by
// arithmetic on integers alone, so that no mode of the processor counts.
//
// Kernels: they allocate nothing and cannot fail. Buffers hold what the arguments say and need no alignment; outputs
// must not overlap inputs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

struct RoundingKernels {
  // F32 to BF16 and to F16, to the nearest, of two equally near to the even one.
  void (*round_to_bf16)(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept;
  void (*round_to_f16)(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept;

  // The lower two bytes of each float of four.
  void (*low_halves)(const std::uint8_t* masters, std::size_t elements, std::uint8_t* lows) noexcept;

  // The F32 with these lower halves that round to these BF16; with `lows` nullptr, all of them 0.
  void (*widen_bf16)(const std::uint8_t* weights, const std::uint8_t* lows, std::size_t elements,
                     std::uint8_t* masters) noexcept;

  static const RoundingKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
