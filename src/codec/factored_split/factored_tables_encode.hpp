// Tables for what is left of elements once their scales are taken off: where the sixteen symbols of a class begin and
// how wide they are, chosen from counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// Counts of what is left, by eighths of an octave from kLeftBins / 2 below the scales on.
inline constexpr std::size_t kLeftBins = 256;

struct LeftCounts {
  std::array<std::uint32_t, kLeftBins> bins{};
  std::uint32_t total = 0;  // with what is in no bin

  void add(const LeftCounts& other) noexcept;
};

struct SymbolWindow {
  std::size_t first_bin = 0;  // where symbol 0 begins
  unsigned bins_shift = 0;    // a symbol is 2^bins_shift bins wide
  std::uint64_t cost = 0;     // of all that was counted, in units of 2^-kCostBits bits, with the bits below a bin
  std::array<std::uint8_t, entropy::kClassSymbols> frequencies{};
};

// The window that costs least. `bin_bits`: bits of a value below a bin. Precondition: something was counted.
[[nodiscard]] SymbolWindow choose_window(const LeftCounts& counts, unsigned bin_bits) noexcept;

}  // namespace bitsnap::codec
