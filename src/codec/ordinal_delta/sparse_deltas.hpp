// Shared by both sides of the sparse form of ordinal_delta: spec.md, "Sparse".
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/ordinal_delta/sparse_changes_kernel.hpp"

namespace bitsnap::codec {

// On disk: never change.
inline constexpr unsigned kGapWidth = 18;
inline constexpr std::size_t kListBytes = 2 * sizeof(std::uint32_t);
inline constexpr unsigned kCountBits = 19;
inline constexpr std::uint32_t kCountMask = (1U << kCountBits) - 1;
inline constexpr std::uint32_t kParameterMask = 31;

// The header of one class's list.
struct ChangeList {
  std::size_t changed = 0;
  std::size_t farther = 0;
  unsigned gap_parameter = 0;
  unsigned farther_gap_parameter = 0;
  unsigned distance_parameter = 0;
};

[[nodiscard]] constexpr std::size_t sparse_header_bytes(std::size_t classes) noexcept {
  return 3 + (classes - 1) + classes * kListBytes;
}

}  // namespace bitsnap::codec
