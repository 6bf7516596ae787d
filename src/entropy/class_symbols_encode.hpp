// Turns the values of one context into symbols: docs/spec/rans.md, "Values by class". Values are counted once, in
// buckets that no symbol of any plan divides. Integer arithmetic gives the same plans for the same sample everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "entropy/class_lanes.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {

// Bucket 0 is the value 0; the other buckets are the position of the leading bit and the three bits after it.
inline constexpr std::size_t kClassBuckets = 1 + 16 * 8;

// A conversion to float gives both without a branch, and vectorizes.
[[nodiscard]] constexpr std::uint32_t class_bucket_of(std::uint32_t value) noexcept {
  constexpr std::int32_t kBeforeOne = (127 << 3) - 1;
  const std::int32_t place = std::bit_cast<std::int32_t>(static_cast<float>(static_cast<std::int32_t>(value))) >> 20;
  return static_cast<std::uint32_t>(std::max(place, kBeforeOne) - kBeforeOne);
}

// The number of values in all buckets before each bucket.
using BucketSums = std::array<std::uint16_t, kClassBuckets + 1>;

using SymbolCounts = std::array<std::uint32_t, kClassSymbols>;

// The cost of these counts with their own table.
[[nodiscard]] std::uint64_t entropy_cost(const SymbolCounts& counts) noexcept;

inline constexpr unsigned kEscapedBits = 16;
inline constexpr unsigned kMostShift = 13;  // the least shift with which every value is a symbol
inline constexpr unsigned kMostCoarseness = 3;

// A plan without its class, and its symbols.
struct PlannedSymbols {
  unsigned shift = 0;
  unsigned coarseness = 0;
  SymbolCounts counts{};
  std::uint64_t own_cost = 0;  // with a table of its own; set by the choose_ functions only

  // The bits of low bits and escapes, without the symbols.
  [[nodiscard]] std::uint64_t raw_bits() const noexcept;
};

// Preconditions: shift is at most kMostShift, coarseness at most kMostCoarseness.
[[nodiscard]] PlannedSymbols plan_symbols(const BucketSums& sums, unsigned shift, unsigned coarseness) noexcept;

// Symbols of equal width, with the least shift that makes nearly all values symbols.
[[nodiscard]] PlannedSymbols choose_even_symbols(const BucketSums& sums, unsigned max_shift) noexcept;

// `even`, or the best symbols with octaves if they cost less.
[[nodiscard]] PlannedSymbols choose_symbols(const BucketSums& sums, const PlannedSymbols& even) noexcept;

}  // namespace bitsnap::entropy
