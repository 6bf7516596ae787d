// A tensor as a matrix: how many of its elements stand in a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <bitsnap/tensor.hpp>

namespace bitsnap::tensor {

// Of a row: fewer are not worth a scale of their own.
inline constexpr std::size_t kFewestRowElements = 64;

// The least product of last extents that is enough for a row, without all of them: of a matrix its last extent, of the
// weights of a convolution all but the first. 0 where there is none, or where a chunk has not as much as one row.
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
