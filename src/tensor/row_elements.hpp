// The row length of a tensor that is treated as a matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bitsnap/tensor.hpp>

namespace bitsnap::tensor {

// A shorter row does not pay for its own scale.
inline constexpr std::size_t kFewestRowElements = 64;

// The smallest product of trailing extents that reaches kFewestRowElements without including all extents: for a matrix
// its last extent, for a convolution's weights all but the first. 0 if there is none, or if a row is longer than a
// chunk.
[[nodiscard]] constexpr std::size_t row_elements(std::span<const std::uint64_t> shape) noexcept {
  std::uint64_t product = 1;
  for (std::size_t i = shape.size(); i > 1; --i) {
    const std::uint64_t extent = shape[i - 1];
    if (extent == 0 || extent > kChunkElements / product) return 0;
    product *= extent;
    if (product >= kFewestRowElements) return static_cast<std::size_t>(product);
  }
  return 0;
}

}  // namespace bitsnap::tensor
