// The loops of lattice_kernel.hpp, one element after another, for the compiler to make vectors of at each CPU level.
// Everything has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/scaled_by/lattice_arithmetic.hpp"
#include "codec/scaled_by/lattice_kernel.hpp"

namespace bitsnap::codec {
namespace {

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
