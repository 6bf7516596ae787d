// First moments made multiples of a step of the update: docs/spec/update_step.md. One per CPU level; all give the same
// bits, as each operation is one of IEEE 754 on floats of four bytes, in a fixed order.
//
// Kernels: they allocate nothing and cannot fail. Moments are replaced in place; squares are as many and must not
// overlap them. Neither needs an alignment. Precondition: the thread computes as a FloatMode says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/scaled_by/lattice_kernel.hpp"

namespace bitsnap::quantize {

struct UpdateStepKernels {
  void (*round_to_updates)(std::uint8_t* moments, const std::uint8_t* squares, std::size_t elements,
                           const codec::LatticeScale& scale) noexcept;

  static const UpdateStepKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::quantize
