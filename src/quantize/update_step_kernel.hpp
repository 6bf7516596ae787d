// Kernels that round first moments to multiples of a fraction of the update: docs/spec/update_step.md. Each operation
// is an IEEE 754 operation on F32 in a fixed order. Moments are replaced in place; there are as many squares, which
// must not overlap them. Precondition: a FloatMode is active.
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
