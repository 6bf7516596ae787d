// Choosing plans and tables for values by class from a sample: docs/spec/rans.md, "Values by class". Integers only, so
// that the same sample gives the same tables everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "entropy/class_lanes.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {

inline constexpr unsigned kMaxClassShift = 13;  // the first with which every value is a symbol

struct ClassSample {
  std::span<const std::uint8_t> contexts;  // each below kClassContexts
  std::span<const std::uint16_t> values;   // as many
  std::size_t elements = 0;                // of which this is a sample
  unsigned max_shift = kMaxClassShift;     // at most that; with more than 7, low bytes are coded apart
};

struct ClassChoice {
  ClassTables tables;
  std::uint64_t cost = 0;  // of the sample, with these tables, in units of 2^-kCostBits bits
};

// Each context gets the least shift with which nearly all its values are symbols of their own; then contexts in a row
// share a class where that costs least (dynamic programming over all ways to part them). Every class can escape, so
// that any values can be coded whatever the sample missed. Precondition: 1 to 65535 values.
[[nodiscard]] ClassChoice choose_class_tables(const ClassSample& sample) noexcept;

}  // namespace bitsnap::entropy
