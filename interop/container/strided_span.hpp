// How far the elements of a tensor with strides reach. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/checked.hpp"

namespace bitsnap::interop {

// The elements from the first to the last one: 0 if a dimension is empty; nullopt if they do not fit in 64 bits.
// Precondition: as many strides as extents.
[[nodiscard]] inline std::optional<std::uint64_t> strided_span(std::span<const std::uint64_t> shape,
                                                               std::span<const std::uint64_t> stride) noexcept {
  std::optional<std::uint64_t> span = 1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    const auto steps = checked_multiply(shape[i] - 1, stride[i]);
    span = span && steps ? checked_add(*span, *steps) : std::nullopt;
  }
  return span;
}

// Whether the elements lie row by row without gaps. Precondition: as above, and the extents multiply to 64 bits.
[[nodiscard]] inline bool is_row_major(std::span<const std::uint64_t> shape,
                                       std::span<const std::uint64_t> stride) noexcept {
  std::uint64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && stride[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace bitsnap::interop
