// What both sides of the lane coder agree on: docs/spec/rans.md. Its table, and the sizes that are fixed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace bitsnap::entropy {

// On disk: never change.
inline constexpr std::size_t kRansLanes = 64;             // states of a group, one element each in every step
inline constexpr std::size_t kRansGroups = 4;             // groups, each with a stream of its own
inline constexpr std::size_t kRansBlockElements = 65536;  // elements that share a table
inline constexpr std::size_t kRansMaxSymbols = 15;        // of a table, without the escape
inline constexpr unsigned kRansScale = 256;               // what the frequencies of a table sum to

inline constexpr std::size_t kRansStepElements = kRansLanes * kRansGroups;
inline constexpr std::size_t kRansStateBytes = 2 * kRansStepElements;
inline constexpr std::size_t kMaxRansTableBytes = 1 + 2 * kRansMaxSymbols;

// Every state is this before the first element is encoded, and must be this again after the last was decoded. It is
// the least state, which costs the fewest bits, and only its upper byte is not zero.
inline constexpr unsigned kRansFirstState = 256;

// The symbols of a block with their frequencies. What the frequencies leave of kRansScale is the escape's.
struct RansTable {
  std::size_t count = 0;                                   // symbols, 1 to kRansMaxSymbols
  std::array<std::uint8_t, kRansMaxSymbols> symbols;       // all different
  std::array<std::uint16_t, kRansMaxSymbols> frequencies;  // at least 1
  unsigned escape = 0;                                     // frequency of the escape; 0: there is none

  // All elements of the block have the one symbol, and nothing of them is coded.
  [[nodiscard]] bool is_single() const noexcept { return count == 1 && escape == 0; }
};

// Reads a table from the front of `bytes` and returns how many it took.
[[nodiscard]] Result<std::size_t> read_rans_table(ConstByteSpan bytes, RansTable& table);

}  // namespace bitsnap::entropy
