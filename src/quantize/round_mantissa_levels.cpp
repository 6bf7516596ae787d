// Loops without branches that compilers vectorize at each CPU level.

#include "quantize/round_mantissa_kernel.hpp"

#include "base/kernel_bits.hpp"

namespace bitsnap::quantize {
namespace {

// The dropped bits of a number of this magnitude, all set: the significand bits more than `kept` below the leading bit,
// which is implicit, or the highest set bit of a subnormal number.
template <typename Bits, unsigned kMantissa>
inline Bits dropped_bits(Bits magnitude, unsigned kept) noexcept {
  constexpr auto kSignificand = static_cast<Bits>((Bits{2} << kMantissa) - 1);
  Bits filled = magnitude;
  filled = static_cast<Bits>(filled | filled >> 1);
  filled = static_cast<Bits>(filled | filled >> 2);
  filled = static_cast<Bits>(filled | filled >> 4);
  filled = static_cast<Bits>(filled | filled >> 8);
  if constexpr (sizeof(Bits) == 4) filled = filled | filled >> 16;
  return static_cast<Bits>((filled & kSignificand) >> (kept + 1));
}

template <typename Bits, unsigned kMantissa, Bits kInfinity>
inline std::size_t round_loop(const std::uint8_t* __restrict from, std::size_t elements, unsigned kept,
                              std::uint8_t* __restrict to) noexcept {
  constexpr auto kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  Bits taken_down = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const Bits bits = load_at<Bits>(from, i);
    const auto magnitude = static_cast<Bits>(bits & kMagnitude);
    const Bits dropped = dropped_bits<Bits, kMantissa>(magnitude, kept);
    const auto below = static_cast<Bits>(magnitude & ~dropped);
    // Half of the lowest kept bit's value, minus one if that bit is 0; nothing if no bit is dropped.
    const auto is_odd = static_cast<Bits>(mask_of<Bits>((magnitude & (dropped + 1)) != 0) & dropped & 1);
    const auto nearest = static_cast<Bits>((magnitude + (dropped >> 1) + is_odd) & ~dropped);
    const Bits is_finite = mask_of<Bits>(magnitude < kInfinity);
    const auto is_beyond = static_cast<Bits>(mask_of<Bits>(nearest >= kInfinity) & is_finite);
    taken_down = static_cast<Bits>(taken_down + (is_beyond & 1));
    const auto rounded = static_cast<Bits>((below & is_beyond) | (nearest & ~is_beyond));
    const auto result = static_cast<Bits>((rounded & is_finite) | (magnitude & ~is_finite) | (bits & ~kMagnitude));
    store_at(to, i, result);
  }
  return taken_down;
}

std::size_t round_mantissa(MantissaFormat format, const std::uint8_t* from, std::size_t elements, unsigned kept,
                           std::uint8_t* to) noexcept {
  switch (format) {
    case MantissaFormat::f32: return round_loop<std::uint32_t, 23, 0x7f800000>(from, elements, kept, to);
    case MantissaFormat::bf16: return round_loop<std::uint16_t, 7, 0x7f80>(from, elements, kept, to);
    case MantissaFormat::f16: return round_loop<std::uint16_t, 10, 0x7c00>(from, elements, kept, to);
  }
  return 0;
}

std::size_t keep_weights(const std::uint8_t* __restrict from, const std::uint8_t* __restrict had,
                         const std::uint8_t* __restrict have, std::size_t elements, unsigned kept,
                         std::uint8_t* __restrict to) noexcept {
  constexpr std::uint32_t kMagnitude = 0x7fffffff;
  constexpr std::uint32_t kInfinity = 0x7f800000;
  std::uint32_t changed = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = load_at<std::uint32_t>(from, i);
    const std::uint32_t nearest = load_at<std::uint32_t>(to, i);
    const std::uint32_t differs = mask_of(load_at<std::uint16_t>(had, i) != load_at<std::uint16_t>(have, i));
    const std::uint32_t magnitude = bits & kMagnitude;
    const std::uint32_t dropped = dropped_bits<std::uint32_t, 23>(magnitude, kept);
    const std::uint32_t below = magnitude & ~dropped;
    const std::uint32_t other = below + ((dropped + 1) & mask_of((nearest & kMagnitude) == below));
    const std::uint32_t is_finite = mask_of(other < kInfinity);
    const std::uint32_t instead = (other & is_finite) | (magnitude & ~is_finite) | (bits & ~kMagnitude);
    const std::uint32_t result = (instead & differs) | (nearest & ~differs);
    // An element that stays because the other neighbour is infinite has been counted before.
    changed += differs & is_finite & 1;
    store_at(to, i, result);
  }
  return changed;
}

}  // namespace

constinit const RoundMantissaKernels RoundMantissaKernels::BITSNAP_KERNEL_LEVEL = {quantize::round_mantissa,
                                                                                   quantize::keep_weights};

}  // namespace bitsnap::quantize
