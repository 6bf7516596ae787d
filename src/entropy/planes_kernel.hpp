// The kernels behind planes.hpp, one table per CPU level; preconditions and aliasing are stated there.
//
// Element sizes are 2, 4 and 8 bytes. `base` is null where nothing is XORed.
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
  Split* split[3][3];  // by the logarithm of the element size, less one, and by Change
  Merge* merge[3][3];

  static const PlaneKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
