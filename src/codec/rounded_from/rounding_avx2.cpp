// Rounding floats, for AVX2.
#include "codec/rounded_from/rounding_kernel.hpp"

#if defined(__x86_64__)
#include "codec/rounded_from/rounding_loop.hpp"

namespace bitsnap::codec {

void round_to_bf16_avx2(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept {
  round_to_bf16_loop(masters, elements, weights);
}

void round_to_f16_avx2(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept {
  round_to_f16_loop(masters, elements, weights);
}

void low_halves_avx2(const std::uint8_t* masters, std::size_t elements, std::uint8_t* lows) noexcept {
  low_halves_loop(masters, elements, lows);
}

void widen_bf16_avx2(const std::uint8_t* weights, const std::uint8_t* lows, std::size_t elements,
                     std::uint8_t* masters) noexcept {
  lows == nullptr ? widen_bf16_loop(weights, nullptr, elements, masters)
                  : widen_bf16_loop(weights, lows, elements, masters);
}

}  // namespace bitsnap::codec
#endif
