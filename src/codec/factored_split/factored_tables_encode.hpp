// Chooses the tables of factored_split from counts: for each class, where its sixteen symbols begin and how wide they
// are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// Counts of values in eighths of an octave; bin kLeftBins / 2 is at the scale.
inline constexpr std::size_t kLeftBins = 256;

struct LeftCounts {
  std::array<std::uint32_t, kLeftBins> bins{};
  std::uint32_t total = 0;  // including values outside all bins

  void add(const LeftCounts& other) noexcept;
};

struct SymbolWindow {
  std::size_t first_bin = 0;  // the first bin of symbol 0
  unsigned bins_shift = 0;    // a symbol is 2^bins_shift bins wide
  std::uint64_t cost = 0;     // of all counted values, in units of 2^-kCostBits bits, with the bits below a bin
  std::array<std::uint8_t, entropy::kClassSymbols> frequencies{};
};

// The cheapest window. `bin_bits` is the number of a value's bits below a bin. Precondition: something was counted.
[[nodiscard]] SymbolWindow choose_window(const LeftCounts& counts, unsigned bin_bits) noexcept;

}  // namespace bitsnap::codec
