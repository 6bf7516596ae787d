// The kernels of change_mask.hpp, with its preconditions. Each processes whole groups of 64 elements from the front;
// the caller does the rest.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// Indexed by log2 of the element size. Each returns the number of elements changed, gathered or scattered.
struct ChangeMaskKernels {
  using Changed = std::size_t(const std::uint8_t* current, const std::uint8_t* base, std::size_t groups,
                              std::uint8_t* mask) noexcept;
  Changed* changed[4];

  static const ChangeMaskKernels kScalar, kAvx2, kAvx512;
};

struct ChangeMoveKernels {
  using Gather = std::size_t(const std::uint8_t* current, const std::uint8_t* mask, std::size_t groups,
                             std::uint8_t* values) noexcept;
  using Scatter = std::size_t(const std::uint8_t* base, const std::uint8_t* mask, const std::uint8_t* values,
                              std::size_t groups, std::uint8_t* out) noexcept;
  Gather* gather[4];
  Scatter* scatter[4];

  static const ChangeMoveKernels kScalar, kAvx512;
};

}  // namespace bitsnap::entropy
