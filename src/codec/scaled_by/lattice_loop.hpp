// The loops of lattice_kernel.hpp, one element after another, for the compiler to make vectors of at each CPU level.
// Everything has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/scaled_by/lattice_kernel.hpp"

namespace bitsnap::codec {
namespace {

template <typename To, typename From>
inline To bits_as(From from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

inline std::uint32_t word_at(const std::uint8_t* words, std::size_t i) noexcept {
  std::uint32_t word;
  __builtin_memcpy(&word, words + 4 * i, sizeof word);
  return word;
}

inline float float_at(const std::uint8_t* floats, std::size_t i) noexcept { return bits_as<float>(word_at(floats, i)); }

inline float scale_of(float square, float a, float b) noexcept {
  const float scaled = a * __builtin_sqrtf(square);
  return scaled + b;
}

// The integer that is nearest, of two the even one; 0 of what is no number or nearer to 32,768 than to 32,767.
inline std::int32_t nearest_integer(float number) noexcept {
  constexpr std::uint32_t kMost = 0x46fffeff;   // the largest below 32,767.5
  constexpr float kOnlyIntegers = 12582912.0F;  // 1.5 * 2^23, from where on floats are whole numbers
  constexpr std::uint32_t kBitsOfThat = 0x4b400000;
  const auto bits = bits_as<std::uint32_t>(number);
  // All bits where it is kept. A branch would keep the compiler from making vectors.
  const auto kept = static_cast<std::uint32_t>(static_cast<std::int32_t>((bits & 0x7fffffff) - (kMost + 1)) >> 31);
  const float whole = bits_as<float>(bits & kept) + kOnlyIntegers;
  return static_cast<std::int32_t>(bits_as<std::uint32_t>(whole) - kBitsOfThat);
}

// The bits of that multiple; of 0 where it is no number, as that is not the same on all machines.
inline std::uint32_t multiple_of(float scale, std::int32_t integer) noexcept {
  const auto bits = bits_as<std::uint32_t>(static_cast<float>(integer) * scale);
  return (bits & 0x7fffffff) > 0x7f800000 ? 0 : bits;
}

inline void nearest_loop(const std::uint8_t* floats, const std::uint8_t* squares, std::size_t elements,
                         const LatticeScale& scale, float share, std::int16_t* __restrict multiples) noexcept {
  const auto [a, b] = scale;
  for (std::size_t i = 0; i < elements; ++i) {
    const float quotient = float_at(floats, i) / scale_of(float_at(squares, i), a, b);
    multiples[i] = static_cast<std::int16_t>(nearest_integer(quotient * share));
  }
}

inline bool measure_loop(const std::uint8_t* floats, const std::uint8_t* squares, const std::int16_t* expected,
                         std::size_t elements, const LatticeScale& scale, std::uint16_t* __restrict values) noexcept {
  const auto [a, b] = scale;
  for (std::size_t i = 0; i < elements; ++i) {
    const float own = scale_of(float_at(squares, i), a, b);
    const std::int32_t integer = nearest_integer(float_at(floats, i) / own);
    const auto away = static_cast<std::int16_t>(integer - expected[i]);
    const auto zigzag = static_cast<std::uint16_t>((away << 1) ^ (away >> 15));
    values[i] = multiple_of(own, integer) == word_at(floats, i) ? zigzag : kOffLattice;
  }
  // Within the loop above, g++ makes no vectors of it.
  std::uint16_t most = 0;
  for (std::size_t i = 0; i < elements; ++i) most = values[i] > most ? values[i] : most;
  return most == kOffLattice;
}

inline bool put_loop(const std::uint8_t* squares, const std::int16_t* expected, const std::uint16_t* values,
                     std::size_t elements, const LatticeScale& scale, std::uint8_t* __restrict out) noexcept {
  const auto [a, b] = scale;
  std::uint16_t most = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const float own = scale_of(float_at(squares, i), a, b);
    most = values[i] > most ? values[i] : most;
    const auto away = static_cast<std::int32_t>((values[i] >> 1) ^ -(values[i] & 1));
    const auto integer = static_cast<std::int16_t>(expected[i] + away);
    const std::uint32_t bits = multiple_of(own, integer);
    __builtin_memcpy(out + 4 * i, &bits, sizeof bits);
  }
  return most == kOffLattice;
}

}  // namespace
}  // namespace bitsnap::codec
