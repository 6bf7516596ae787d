// Choosing the table of a block for the lane coder, from counts of a sample: docs/spec/rans.md, "Tables". Integers
// only, so that the same counts give the same table everywhere.
#pragma once

#include "entropy/histogram.hpp"
#include "entropy/rans.hpp"
#include "entropy/rans_encode_kernel.hpp"

namespace bitsnap::entropy {

// Costs are in units of 2^-16 bits.
inline constexpr unsigned kCostBits = 16;

struct RansChoice {
  RansTable table;
  std::uint64_t cost = 0;  // of what was counted, in this table
};

// The order-0 entropy of what was counted, which no table can beat; to one part in 256 for each symbol.
[[nodiscard]] std::uint64_t entropy_of(const Histogram& counts) noexcept;

// A table for a block of which `counts` were sampled: a window of at most 14 symbols in a row, and the one symbol that
// is commonest outside. Everything else is escaped, so that every block can be coded whatever the sample missed.
// Precondition: something was counted, and at most 2^24 symbols.
[[nodiscard]] RansChoice choose_rans_table(const Histogram& counts) noexcept;

// The table of a block that has one symbol alone.
[[nodiscard]] RansTable single_rans_table(std::uint8_t symbol) noexcept;

// Writes the table, at most kMaxRansTableBytes; returns the bytes written.
[[nodiscard]] std::size_t write_rans_table(const RansTable& table, std::byte* out) noexcept;

// Precondition: the table is one of choose_rans_table() or single_rans_table().
void fill_encode_table(const RansTable& from, RansEncodeTable& table) noexcept;

}  // namespace bitsnap::entropy
