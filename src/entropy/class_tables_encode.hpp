// Chooses plans and tables for values by class from a sample: docs/spec/rans.md, "Values by class". Integer arithmetic
// gives the same tables for the same sample everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "entropy/class_lanes.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {

struct ClassSample {
  std::span<const std::uint8_t> contexts;  // each below kClassContexts
  std::span<const std::uint16_t> values;   // same length
  std::span<const std::uint16_t> others;   // the values by the other measure, for contexts from one on; or empty
  unsigned least_other_shift = 0;          // least shift of a context that may use the other measure
  std::size_t elements = 0;                // of the whole, of which this is a sample
  std::uint64_t per_octave_gain = 128;     // octaves must save 1 part in this many, because their kernels are slower
};

struct ClassChoice {
  ClassTables tables;
  std::uint64_t cost = 0;                    // of the sample with these tables, in units of 2^-kCostBits bits
  std::size_t first_other = kClassContexts;  // contexts from this one on use `others`
};

// Each context gets the least shift with which nearly all its values are symbols; contexts from one on use the other
// measure if that costs least. Then dynamic programming divides the contexts in a row into classes of least cost. Every
// class has an escape, so values that the sample missed can be coded. Precondition: 1 to 65535 values.
[[nodiscard]] ClassChoice choose_class_tables(const ClassSample& sample) noexcept;

}  // namespace bitsnap::entropy
