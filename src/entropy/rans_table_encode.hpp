// Chooses the lane coder's table of a block from the counts of a sample: docs/spec/rans.md, "Tables". Integer
// arithmetic gives the same table for the same counts everywhere.
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

// log2(n) in units of 2^-16 for n up to kRansScale, with the bits of the fraction by repeated squaring.
constexpr std::array<std::uint32_t, kRansScale + 1> make_rans_logarithms() noexcept {
  std::array<std::uint32_t, kRansScale + 1> logarithms{};
  for (std::uint32_t n = 1; n <= kRansScale; ++n) {
    const auto whole = static_cast<unsigned>(std::bit_width(n)) - 1;
    std::uint64_t power = std::uint64_t{n} << (31 - whole);  // in [1, 2), with 31 bits after the point
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

// log2(n) from the eight leading bits of n. Precondition: n is not 0.
[[nodiscard]] inline std::uint64_t rans_logarithm(std::uint32_t n) noexcept {
  const auto width = static_cast<unsigned>(std::bit_width(n));
  if (width <= 8) return kRansLogarithms[n];
  const unsigned shift = width - 8;
  return kRansLogarithms[n >> shift] + (std::uint64_t{shift} << kCostBits);
}

// Frequencies of `size` counts that sum to kRansScale, at least 1 each. The shares are rounded down; then slots are
// added where they save most, or removed where they cost least. Preconditions: size is 1 to kRansScale, and `total`,
// the sum of the counts, is not 0.
void share_rans_slots(const std::uint32_t* counts, std::size_t size, std::uint32_t total,
                      std::uint16_t* slots) noexcept;

// The cost of a symbol with n slots.
[[nodiscard]] inline std::uint64_t slots_cost(std::uint32_t n) noexcept {
  return (std::uint64_t{8} << kCostBits) - rans_logarithm(n);
}

struct RansChoice {
  RansTable table;
  std::uint64_t cost = 0;  // of the counted symbols with this table
};

// The order-0 entropy of the counts, a lower bound for every table; accurate to 1 / 256 for each symbol.
[[nodiscard]] std::uint64_t entropy_of(const Histogram& counts) noexcept;

// A table for a block with the sampled `counts`: a window of at most 14 consecutive symbols, and the most common symbol
// outside it. Everything else is escaped, so symbols that the sample missed can be coded. Precondition: the counts sum
// to 1 to 2^24.
[[nodiscard]] RansChoice choose_rans_table(const Histogram& counts) noexcept;

// The table of a block with one symbol.
[[nodiscard]] RansTable single_rans_table(std::uint8_t symbol) noexcept;

// What the unused lanes of the last round code.
[[nodiscard]] std::uint8_t commonest_symbol(const RansTable& table) noexcept;

// Writes the table, at most kMaxRansTableBytes; returns the bytes written.
[[nodiscard]] std::size_t write_rans_table(const RansTable& table, std::byte* out) noexcept;

// Precondition: the table comes from choose_rans_table() or single_rans_table().
void fill_encode_table(const RansTable& from, RansEncodeTable& table) noexcept;

}  // namespace bitsnap::entropy
