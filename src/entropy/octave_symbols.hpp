// Symbols of values by class that widen by octaves: docs/spec/rans.md, "Values by class". What a symbol stands for
// follows from its context's coarseness alone: tables that kernels look at, and no code, so that a file compiled for
// one CPU level hands nothing to others.
#pragma once

#include <array>
#include <cstdint>

namespace bitsnap::entropy {

// By coarseness and symbol, 16 places for each coarseness.
using OctaveTable = std::array<std::uint8_t, 64>;

// The low bits of a symbol beyond its context's shift.
[[nodiscard]] consteval OctaveTable make_octaves() noexcept {
  OctaveTable octaves{};
  for (unsigned i = 0; i < octaves.size(); ++i) {
    const unsigned octave = i % 16 >> (3 - i / 16);
    // The escape has those of the first symbols.
    octaves[i] = static_cast<std::uint8_t>(octave == 0 || i % 16 == 15 ? 0 : octave - 1);
  }
  return octaves;
}

alignas(64) inline constexpr OctaveTable kSymbolOctaves = make_octaves();

// What of a value stands above its low bits.
[[nodiscard]] consteval OctaveTable make_heads() noexcept {
  OctaveTable heads{};
  for (unsigned i = 0; i < heads.size(); ++i) {
    heads[i] = static_cast<std::uint8_t>(i % 16 - (unsigned{kSymbolOctaves[i]} << (3 - i / 16)));
  }
  return heads;
}

alignas(64) inline constexpr OctaveTable kSymbolHeads = make_heads();

inline constexpr std::uint8_t kMostLowBits = 15;  // of any value; symbols that would have more stand for none

}  // namespace bitsnap::entropy
