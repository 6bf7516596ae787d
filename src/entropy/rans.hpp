// Shared by both sides of the lane coder: docs/spec/rans.md. The table, and the fixed sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace bitsnap::entropy {

// On disk: never change.
inline constexpr std::size_t kRansLanes = 64;             // states of a group; each codes one element per round
inline constexpr std::size_t kRansGroups = 4;             // groups, each with its own stream
inline constexpr std::size_t kRansBlockElements = 65536;  // elements that share a table
inline constexpr std::size_t kRansMaxSymbols = 15;        // of a table, without the escape
inline constexpr unsigned kRansScale = 256;               // the sum of a table's frequencies

inline constexpr std::size_t kRansRoundElements = kRansLanes * kRansGroups;
inline constexpr std::size_t kRansStateBytes = 2 * kRansRoundElements;
// Kernels may read this many bytes too far, which never leaves a payload: the states come last and are longer.
inline constexpr std::size_t kReadableBehind = 64;
static_assert(kRansStateBytes >= kReadableBehind);
// Kernels that encode may overwrite this many bytes below a cursor.
inline constexpr std::size_t kWritableBelow = 64;
inline constexpr std::size_t kMaxRansTableBytes = 1 + 2 * kRansMaxSymbols;

// The state before the first element is encoded and after the last is decoded. It is the least state, which costs the
// fewest bits, and its lower byte is zero.
inline constexpr unsigned kRansFirstState = 256;

// The symbols of a block with their frequencies. The escape has the rest of kRansScale.
struct RansTable {
  std::size_t count = 0;                                   // symbols, 1 to kRansMaxSymbols
  std::array<std::uint8_t, kRansMaxSymbols> symbols;       // all different
  std::array<std::uint16_t, kRansMaxSymbols> frequencies;  // at least 1
  unsigned escape = 0;                                     // frequency of the escape; 0: no escape

  // All elements of the block have the same symbol, and no symbol is coded.
  [[nodiscard]] bool is_single() const noexcept { return count == 1 && escape == 0; }
};

// Reads a table from the front of `bytes` and returns the bytes used.
[[nodiscard]] Result<std::size_t> read_rans_table(ConstByteSpan bytes, RansTable& table);

}  // namespace bitsnap::entropy
