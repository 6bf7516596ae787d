// Kernels that remove the scales of row and column from elements, and add them again: spec.md, "Elements". A call is
// for adjacent elements of one row, with the scales of their columns in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

struct FactoredGeometry {
  std::size_t element_bytes = 0;  // 2 or 4
  std::size_t low_bytes = 0;      // of four-byte elements, 1 or 2; bits above the next 16 are 0, or cut off
  bool rotated = false;           // the sign is the lowest bit
};

// How elements become numbers when scales are estimated: the distance from the middle, clamped to +-`most`, in units of
// 2^unit or of 2^-finer.
struct FactoredRange {
  std::int32_t middle = 0;
  std::int32_t most = 0;
  unsigned unit = 0;
  unsigned finer = 0;  // unit or finer is 0
};

inline constexpr std::int32_t kMostDistance = 1536;  // units
inline constexpr std::size_t kMostSummed = 1024;     // elements of one call; the sum of their squares fits 32 bits

// For the elements of a row.
struct RowSums {
  std::uint32_t bits = 0;  // OR of all elements
  std::int64_t sum = 0;    // of the distances
  std::uint64_t squares = 0;
};

struct FactoredRowKernels {
  // Adds at most kMostSummed elements to `sums`, and each distance to its column in `columns`, which may be nullptr.
  void (*sum_row)(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                  const FactoredRange& range, std::int32_t* columns, RowSums& sums) noexcept;

  // The distances of elements, each a 2^rough-th.
  void (*measure)(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                  const FactoredRange& range, unsigned rough, std::int16_t* distances) noexcept;

  // The sum of products. Precondition: it fits 32 bits.
  std::int32_t (*correlate)(const std::int16_t* a, const std::int16_t* b, std::size_t count) noexcept;

  // Elements to values and low bytes.
  void (*take_off_scales)(const std::uint8_t* elements, std::size_t count, const FactoredGeometry& geometry,
                          std::uint16_t row, const std::uint16_t* columns, std::uint16_t* values,
                          std::uint8_t* low) noexcept;

  // Values and low bytes to elements.
  void (*put_on_scales)(const std::uint16_t* values, const std::uint8_t* low, std::size_t count,
                        const FactoredGeometry& geometry, std::uint16_t row, const std::uint16_t* columns,
                        std::uint8_t* elements) noexcept;

  static const FactoredRowKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
