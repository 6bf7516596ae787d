// Choosing plans and tables for values by class from a sample: docs/spec/rans.md, "Values by class". Integers only, so
// that the same sample gives the same tables everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "entropy/class_lanes.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {

struct ClassSample {
  std::span<const std::uint8_t> contexts;  // each below kClassContexts
  std::span<const std::uint16_t> values;   // as many
  std::span<const std::uint16_t> others;   // the same measured otherwise, for contexts from one on; or empty
  unsigned least_other_shift = 0;          // only contexts with that shift or more may be measured otherwise
  std::size_t elements = 0;                // of which this is a sample
  std::uint64_t per_octave_gain = 128;     // octaves are to save one part in so many, as kernels are slower with them
};

struct ClassChoice {
  ClassTables tables;
  std::uint64_t cost = 0;                    // of the sample, with these tables, in units of 2^-kCostBits bits
  std::size_t first_other = kClassContexts;  // from this context on, values are to be those of `others`
};

// Each context gets the least shift with which nearly all its values are symbols of their own; contexts from one on are
// measured otherwise where that costs least; then contexts in a row share a class where that costs least (dynamic
// programming over all ways to part them). Every class can escape, so that any values can be coded whatever the sample
// missed. Precondition: 1 to 65535 values.
[[nodiscard]] ClassChoice choose_class_tables(const ClassSample& sample) noexcept;

}  // namespace bitsnap::entropy
