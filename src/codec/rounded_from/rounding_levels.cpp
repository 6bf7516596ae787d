// Loops that compilers vectorize at each CPU level.
#include "codec/rounded_from/rounding_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::codec {
namespace {

inline void put_half(std::uint32_t bits, std::uint8_t* halves, std::size_t i) noexcept {
  store_at(halves, i, static_cast<std::uint16_t>(bits));
}

void round_to_bf16(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = load_at<std::uint32_t>(masters, i);
    put_half((bits + 0x7fff + (bits >> 16 & 1)) >> 16, weights, i);
  }
}

// Computes all three kinds of results to avoid branches.
void round_to_f16(const std::uint8_t* masters, std::size_t elements, std::uint8_t* weights) noexcept {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  constexpr std::uint32_t kLeastInfinite = 0x477ff000;  // rounds to infinity from here on
  constexpr std::uint32_t kLeastNormal = 0x38800000;    // 2^-14
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = load_at<std::uint32_t>(masters, i);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (std::uint32_t{112} << 23)) >> 13;
    // Subnormal: the significand is in units of 2^-24. 2^-25 and less become 0.
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
    const std::uint32_t distance = 126 - exponent;
    const std::uint32_t shift = distance < 25 ? distance : 25;
    const std::uint32_t below = (std::uint32_t{1} << ((shift - 1) & 31)) - 1;
    const std::uint32_t subnormal = (significand + below + (significand >> shift & 1)) >> shift;
    std::uint32_t rounded = magnitude < kLeastNormal ? subnormal : normal;
    rounded = magnitude >= kLeastInfinite ? 0x7c00 : rounded;
    rounded = magnitude > kInfinity ? 0x7e00 : rounded;
    put_half((bits >> 16 & 0x8000) | rounded, weights, i);
  }
}

void low_halves(const std::uint8_t* masters, std::size_t elements, std::uint8_t* lows) noexcept {
  for (std::size_t i = 0; i < elements; ++i) put_half(load_at<std::uint32_t>(masters, i), lows, i);
}

inline void widen_bf16_loop(const std::uint8_t* weights, const std::uint8_t* lows, std::size_t elements,
                            std::uint8_t* masters) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t low = lows == nullptr ? 0U : load_at<std::uint16_t>(lows, i);
    const std::uint32_t upper = load_at<std::uint16_t>(weights, i) - (low > 0x8000 ? 1U : 0U);
    store_at(masters, i, upper << 16 | low);
  }
}

void widen_bf16(const std::uint8_t* weights, const std::uint8_t* lows, std::size_t elements,
                std::uint8_t* masters) noexcept {
  lows == nullptr ? widen_bf16_loop(weights, nullptr, elements, masters)
                  : widen_bf16_loop(weights, lows, elements, masters);
}

}  // namespace

constinit const RoundingKernels RoundingKernels::BITSNAP_KERNEL_LEVEL = {codec::round_to_bf16, codec::round_to_f16,
                                                                         codec::low_halves, codec::widen_bf16};

}  // namespace bitsnap::codec
