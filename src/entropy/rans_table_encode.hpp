// Choosing the table of a block for the lane coder, from counts of a sample: docs/spec/rans.md, "Tables". Integers
// only, so that the same counts give the same table everywhere.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "entropy/histogram.hpp"
#include "entropy/rans.hpp"
#include "entropy/rans_encode_kernel.hpp"

namespace bitsnap::entropy {

// Costs are in units of 2^-16 bits.
inline constexpr unsigned kCostBits = 16;

// log2(n) in units of 2^-16 for n up to kRansScale: the bits of the fraction by repeated squaring.
constexpr std::array<std::uint32_t, kRansScale + 1> make_rans_logarithms() noexcept {
  std::array<std::uint32_t, kRansScale + 1> logarithms{};
  for (std::uint32_t n = 1; n <= kRansScale; ++n) {
    const auto whole = static_cast<unsigned>(std::bit_width(n)) - 1;
    std::uint64_t power = std::uint64_t{n} << (31 - whole);  // in [1, 2), 31 bits behind the point
    std::uint32_t logarithm = whole;
    for (unsigned bit = 0; bit < kCostBits; ++bit) {
      power = power * power >> 31;
      const auto carry = static_cast<std::uint32_t>(power >> 32);
      power >>= carry;
      logarithm = logarithm << 1 | carry;
    }
    logarithms[n] = logarithm;
  }
  return logarithms;
}

inline constexpr std::array<std::uint32_t, kRansScale + 1> kRansLogarithms = make_rans_logarithms();

// log2(n) by the eight leading bits of n, which is not 0.
[[nodiscard]] inline std::uint64_t rans_logarithm(std::uint32_t n) noexcept {
  const auto width = static_cast<unsigned>(std::bit_width(n));
  if (width <= 8) return kRansLogarithms[n];
  const unsigned shift = width - 8;
  return kRansLogarithms[n >> shift] + (std::uint64_t{shift} << kCostBits);
}

// Frequencies of `size` counts that sum to kRansScale, at least 1 each: from the shares rounded down, slots go to where
// they save most, or are taken from where they cost least. Preconditions: size is 1 to kRansScale, `total` is the sum
// of the counts and not 0.
void share_rans_slots(const std::uint32_t* counts, std::size_t size, std::uint32_t total,
                      std::uint16_t* slots) noexcept;

// What a symbol of n slots costs.
[[nodiscard]] inline std::uint64_t slots_cost(std::uint32_t n) noexcept {
  return (std::uint64_t{8} << kCostBits) - rans_logarithm(n);
}

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
