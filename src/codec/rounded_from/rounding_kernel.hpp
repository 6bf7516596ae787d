// Kernels that round F32 and widen again: spec.md. They use integer arithmetic, which no floating-point mode affects.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

struct RoundingKernels {
  // F32 to BF16 and to F16, to the nearest, ties to even.
  void (*round_to_bf16)(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept;
  void (*round_to_f16)(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept;

  // The lower two bytes of each F32.
  void (*low_halves)(const std::uint8_t* masters, std::size_t elements, std::uint8_t* lows) noexcept;

  // The F32 with these lower halves that round to these BF16; if `lows` is nullptr, all are 0.
  void (*widen_bf16)(const std::uint8_t* weights, const std::uint8_t* lows, std::size_t elements,
                     std::uint8_t* masters) noexcept;

  static const RoundingKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
