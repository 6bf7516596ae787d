// Kernels: moments to multiples of a lattice, and back: spec.md, "Lattice". Each operation is an IEEE 754 operation on
// F32 in a fixed order. Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// On disk: never change.
inline constexpr std::uint16_t kOffLattice = 0xffff;  // the value of an element that is an exception

// The scale of an element with the second moment v is a * sqrt(v) + b.
struct LatticeScale {
  float a = 0;
  float b = 0;
};

struct LatticeKernels {
  // The multiples nearest to `share` times each float; 0 if that is not within +-32,767.
  void (*nearest_multiples)(const std::uint8_t* floats, const std::uint8_t* squares, std::size_t elements,
                            const LatticeScale& scale, float share, std::int16_t* multiples) noexcept;

  // The distances of the floats' exact multiples from the expected ones, as zigzags modulo 2^16; kOffLattice for floats
  // that are no multiples. Returns whether there is one.
  bool (*measure_multiples)(const std::uint8_t* floats, const std::uint8_t* squares, const std::int16_t* expected,
                            std::size_t elements, const LatticeScale& scale, std::uint16_t* values) noexcept;

  // Restores elements from values. Returns whether a value is kOffLattice, which is decoded like any other.
  bool (*put_multiples)(const std::uint8_t* squares, const std::int16_t* expected, const std::uint16_t* values,
                        std::size_t elements, const LatticeScale& scale, std::uint8_t* out) noexcept;

  static const LatticeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
