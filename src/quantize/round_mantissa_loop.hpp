// The loops of round_mantissa_kernel.hpp, one element after another, without branches: each CPU level compiles them for
// itself. Everything has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quantize/round_mantissa_kernel.hpp"

namespace bitsnap::quantize {
namespace {

template <typename Bits>
inline Bits bits_at(const std::uint8_t* bytes, std::size_t i) noexcept {
  Bits bits;
  __builtin_memcpy(&bits, bytes + sizeof bits * i, sizeof bits);
  return bits;
}

// All bits or none.
template <typename Bits>
inline Bits all_if(bool condition) noexcept {
  return static_cast<Bits>(Bits{0} - static_cast<Bits>(condition));
}

// The bits that are dropped from a number of this magnitude, all set: of the significand, those more than `kept` below
// its leading bit. That one is implicit, or, where the number is subnormal, the highest that is set.
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
    const Bits bits = bits_at<Bits>(from, i);
    const auto magnitude = static_cast<Bits>(bits & kMagnitude);
    const Bits dropped = dropped_bits<Bits, kMantissa>(magnitude, kept);
    const auto below = static_cast<Bits>(magnitude & ~dropped);
    // Half of what the lowest kept bit counts, less one where that bit is 0; nothing where no bit is dropped.
    const auto is_odd = static_cast<Bits>(all_if<Bits>((magnitude & (dropped + 1)) != 0) & dropped & 1);
    const auto nearest = static_cast<Bits>((magnitude + (dropped >> 1) + is_odd) & ~dropped);
    const Bits is_finite = all_if<Bits>(magnitude < kInfinity);
    const auto is_beyond = static_cast<Bits>(all_if<Bits>(nearest >= kInfinity) & is_finite);
    taken_down = static_cast<Bits>(taken_down + (is_beyond & 1));
    const auto rounded = static_cast<Bits>((below & is_beyond) | (nearest & ~is_beyond));
    const auto result = static_cast<Bits>((rounded & is_finite) | (magnitude & ~is_finite) | (bits & ~kMagnitude));
    __builtin_memcpy(to + sizeof result * i, &result, sizeof result);
  }
  return taken_down;
}

inline std::size_t round_by_format(MantissaFormat format, const std::uint8_t* from, std::size_t elements, unsigned kept,
                                   std::uint8_t* to) noexcept {
  switch (format) {
    case MantissaFormat::f32: return round_loop<std::uint32_t, 23, 0x7f800000>(from, elements, kept, to);
    case MantissaFormat::bf16: return round_loop<std::uint16_t, 7, 0x7f80>(from, elements, kept, to);
    case MantissaFormat::f16: return round_loop<std::uint16_t, 10, 0x7c00>(from, elements, kept, to);
  }
  return 0;
}

inline std::size_t keep_weights_loop(const std::uint8_t* __restrict from, const std::uint8_t* __restrict had,
                                     const std::uint8_t* __restrict have, std::size_t elements, unsigned kept,
                                     std::uint8_t* __restrict to) noexcept {
  constexpr std::uint32_t kMagnitude = 0x7fffffff;
  constexpr std::uint32_t kInfinity = 0x7f800000;
  std::uint32_t changed = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t bits = bits_at<std::uint32_t>(from, i);
    const std::uint32_t nearest = bits_at<std::uint32_t>(to, i);
    const std::uint32_t differs =
        all_if<std::uint32_t>(bits_at<std::uint16_t>(had, i) != bits_at<std::uint16_t>(have, i));
    const std::uint32_t magnitude = bits & kMagnitude;
    const std::uint32_t dropped = dropped_bits<std::uint32_t, 23>(magnitude, kept);
    const std::uint32_t below = magnitude & ~dropped;
    const std::uint32_t other = below + ((dropped + 1) & all_if<std::uint32_t>((nearest & kMagnitude) == below));
    const std::uint32_t is_finite = all_if<std::uint32_t>(other < kInfinity);
    const std::uint32_t instead = (other & is_finite) | (magnitude & ~is_finite) | (bits & ~kMagnitude);
    const std::uint32_t result = (instead & differs) | (nearest & ~differs);
    // What stays because the other one is infinite was not at the nearest before, either, and has been counted.
    changed += differs & is_finite & 1;
    __builtin_memcpy(to + 4 * i, &result, sizeof result);
  }
  return changed;
}

}  // namespace
}  // namespace bitsnap::quantize
