// Between moments and the multiples of a step that they are: spec.md, "Lattice". One per CPU level; all give the same
// bits, as each operation is one of IEEE 754 on floats of four bytes, in a fixed order.
//
// Kernels: they allocate nothing and cannot fail. Buffers hold what the arguments say and need no alignment; outputs
// must not overlap inputs. Precondition: the thread computes as a FloatMode says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

// On disk: never change.
inline constexpr std::uint16_t kOffLattice = 0xffff;  // the value of an element that stands among the exceptions

// The scale of an element beside the square v is a * sqrt(v) + b.
struct LatticeScale {
  float a = 0;
  float b = 0;
};

struct LatticeKernels {
  // The multiples that come nearest to floats times `share`, 0 where that is none from -32,767 to 32,767.
  void (*nearest_multiples)(const std::uint8_t* floats, const std::uint8_t* squares, std::size_t elements,
                            const LatticeScale& scale, float share, std::int16_t* multiples) noexcept;

  // How far the multiples that floats are, to the bit, are from those expected, as zigzags modulo 2^16; and kOffLattice
  // of those that are none. Whether there is one.
  bool (*measure_multiples)(const std::uint8_t* floats, const std::uint8_t* squares, const std::int16_t* expected,
                            std::size_t elements, const LatticeScale& scale, std::uint16_t* values) noexcept;

  // And back. kOffLattice has no meaning of its own here; whether a value is that.
  bool (*put_multiples)(const std::uint8_t* squares, const std::int16_t* expected, const std::uint16_t* values,
                        std::size_t elements, const LatticeScale& scale, std::uint8_t* out) noexcept;

  static const LatticeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
