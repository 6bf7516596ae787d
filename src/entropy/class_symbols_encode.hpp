// How the values of one context are made symbols: docs/spec/rans.md, "Values by class". Values are counted in buckets
// of which every plan can tell the symbols, so that a sample is looked at once. Integers only, so that the same sample
// gives the same plans everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "entropy/class_lanes.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {

// Bucket 0 is the value 0; the others go by the place of a value's leading bit and the three bits behind that.
inline constexpr std::size_t kClassBuckets = 1 + 16 * 8;

// As a float, which says both without a branch and to many values at a time.
[[nodiscard]] constexpr std::uint32_t class_bucket_of(std::uint32_t value) noexcept {
  constexpr std::int32_t kBeforeOne = (127 << 3) - 1;
  const std::int32_t place = std::bit_cast<std::int32_t>(static_cast<float>(static_cast<std::int32_t>(value))) >> 20;
  return static_cast<std::uint32_t>(std::max(place, kBeforeOne) - kBeforeOne);
}

// How many values there are in all buckets before each.
using BucketSums = std::array<std::uint16_t, kClassBuckets + 1>;

using SymbolCounts = std::array<std::uint32_t, kClassSymbols>;

// What coding these counts with a table of their own costs.
[[nodiscard]] std::uint64_t entropy_cost(const SymbolCounts& counts) noexcept;

inline constexpr unsigned kEscapedBits = 16;
inline constexpr unsigned kMostShift = 13;  // the first with which every value is a symbol
inline constexpr unsigned kMostCoarseness = 3;

// A plan but for the class, and what its symbols are.
struct PlannedSymbols {
  unsigned shift = 0;
  unsigned coarseness = 0;
  SymbolCounts counts{};
  std::uint64_t own_cost = 0;  // with a table of its own; only of those that were chosen here

  // Low bits and escapes, without the symbols.
  [[nodiscard]] std::uint64_t raw_bits() const noexcept;
};

// Preconditions: shift is at most kMostShift, coarseness at most kMostCoarseness.
[[nodiscard]] PlannedSymbols plan_symbols(const BucketSums& sums, unsigned shift, unsigned coarseness) noexcept;

// Symbols that are equally wide, with the least shift with which nearly all values are symbols.
[[nodiscard]] PlannedSymbols choose_even_symbols(const BucketSums& sums, unsigned max_shift) noexcept;

// Those, or the best of octaves where they cost less.
[[nodiscard]] PlannedSymbols choose_symbols(const BucketSums& sums, const PlannedSymbols& even) noexcept;

}  // namespace bitsnap::entropy
