// The kernels of planes.hpp, with its preconditions; one table per CPU level. Element sizes are 2, 4 and 8 bytes.
// `base` is null if nothing is XORed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

enum class Change : std::uint8_t { none, with_base, rotate };

struct PlaneKernels {
  using Split = void(const std::uint8_t* in, const std::uint8_t* base, std::size_t elements,
                     std::uint8_t* const* planes) noexcept;
  using Merge = void(const std::uint8_t* const* planes, const std::uint8_t* base, std::size_t elements,
                     std::uint8_t* out) noexcept;
  Split* split[3][3];  // [log2(element size) - 1][Change]
  Merge* merge[3][3];

  static const PlaneKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
