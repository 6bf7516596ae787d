// Symbols of values by class whose widths grow by octaves: docs/spec/rans.md, "Values by class". The values of a symbol
// depend on the coarseness of the context alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// By coarseness and symbol, 16 places for each coarseness.
struct OctaveSymbols {
  alignas(64) std::uint8_t low_bits[64];  // of a symbol, beyond its context's shift
  alignas(64) std::uint8_t heads[64];     // the part of a value above its low bits
};

[[nodiscard]] consteval OctaveSymbols make_octave_symbols() noexcept {
  OctaveSymbols symbols{};
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned octave = i % 16 >> (3 - i / 16);
    // The escape has the low bits of the first symbols.
    const unsigned low_bits = octave == 0 || i % 16 == 15 ? 0 : octave - 1;
    symbols.low_bits[i] = static_cast<std::uint8_t>(low_bits);
    symbols.heads[i] = static_cast<std::uint8_t>(i % 16 - (low_bits << (3 - i / 16)));
  }
  return symbols;
}

inline constexpr OctaveSymbols kOctaveSymbols = make_octave_symbols();

inline constexpr std::uint8_t kMostLowBits = 15;  // of any value; symbols that would have more stand for no value

}  // namespace bitsnap::entropy
