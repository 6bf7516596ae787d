// The table by which the AVX2 and NEON decoding kernels move stream bytes into lanes. Everything has internal linkage.
#pragma once

#include <cstdint>

namespace bitsnap::entropy {
namespace {

// For each mask of eight lanes, the byte that each marked lane takes; other lanes get zero. A mask is the lower or the
// upper half of 16 lanes; the sum of both orders is the order of all 16.
struct ExpandTable {
  alignas(64) std::uint8_t lower[256][16];  // in its upper half, the number of bytes that the lower half takes
  alignas(64) std::uint8_t upper[256][16];
};

constexpr ExpandTable make_expand_table() noexcept {
  ExpandTable table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned next = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      const auto order = static_cast<std::uint8_t>((mask >> lane & 1) != 0 ? next++ : 0x80);
      table.lower[mask][lane] = order;
      table.upper[mask][8 + lane] = order;
    }
    for (unsigned lane = 8; lane < 16; ++lane) table.lower[mask][lane] = static_cast<std::uint8_t>(next);
  }
  return table;
}

constexpr ExpandTable kExpand = make_expand_table();

}  // namespace
}  // namespace bitsnap::entropy
