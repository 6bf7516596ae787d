// The decoding kernel of the lane coder for the baseline of every machine, and the reference for the others.
#include "entropy/rans_decode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

// What a slot says: its frequency in bits 0-15, the slot less the start in 16-31, the symbol in 40-47, whether it is
// escaped in 63. Fields are wide, so that taking them out needs no masks.
using Entry = std::uint64_t;
constexpr Entry kEscaped = Entry{1} << 63;

void fill_entries(const RansDecodeTable& table, Entry* entries) noexcept {
  unsigned rank = 0;
  for (unsigned slot = 0; slot < 256; ++slot) {
    while (rank < 15 && table.starts[rank + 1] <= slot) ++rank;
    entries[slot] = Entry{table.frequencies[rank]} | Entry{slot - table.starts[rank]} << 16 |
                    Entry{table.symbols[rank]} << 40 | (rank >= table.escape_rank ? kEscaped : 0);
  }
}

// The symbol comes in the upper byte of 16 bits.
template <std::size_t kBytes, bool kRotated>
inline void store_element(std::uint32_t symbol, const std::uint8_t* rest, std::uint8_t* out) noexcept {
  if constexpr (kBytes == 2) {
    auto element = static_cast<std::uint16_t>(symbol | rest[0]);
    if constexpr (kRotated) element = static_cast<std::uint16_t>(element >> 1 | element << 15);
    __builtin_memcpy(out, &element, 2);
  } else {
    std::uint16_t low;
    __builtin_memcpy(&low, rest, 2);
    std::uint32_t element = (symbol | rest[2]) << 16 | low;
    if constexpr (kRotated) element = element >> 1 | element << 31;
    __builtin_memcpy(out, &element, 4);
  }
}

template <std::size_t kBytes, bool kRotated>
void decode(RansDecoding& at, const RansDecodeTable& table, const std::uint8_t* rest, std::size_t steps,
            std::uint8_t* out) noexcept {
  if (table.single) {
    for (std::size_t i = 0; i < steps * kDecodeGroups * kDecodeLanes; ++i) {
      store_element<kBytes, kRotated>(std::uint32_t{table.symbols[0]} << 8, rest + i * (kBytes - 1), out + i * kBytes);
    }
    return;
  }
  constexpr std::size_t kStep = kDecodeGroups * kDecodeLanes;
  Entry entries[256];
  fill_entries(table, entries);
  std::uint16_t states[kStep];
  for (std::size_t lane = 0; lane < kStep; ++lane) {
    states[lane] = static_cast<std::uint16_t>(at.high[lane / kDecodeLanes][lane % kDecodeLanes] << 8 |
                                              at.low[lane / kDecodeLanes][lane % kDecodeLanes]);
  }
  const std::uint8_t* escapes = at.escapes;
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t group = 0; group < kDecodeGroups; ++group) {
      const std::uint8_t* in = at.in[group] < at.limit ? at.in[group] : at.limit;
      escapes = escapes < at.limit ? escapes : at.limit;
      for (std::size_t i = 0; i < kDecodeLanes; ++i) {
        const std::uint32_t kept = states[group * kDecodeLanes + i];
        const Entry entry = entries[kept & 255];
        auto symbol = static_cast<std::uint32_t>(entry >> 32);
        if ((entry & kEscaped) != 0) [[unlikely]]
          symbol = std::uint32_t{*escapes++} << 8;
        const std::uint32_t state =
            static_cast<std::uint16_t>(entry) * (kept >> 8) + (static_cast<std::uint32_t>(entry) >> 16);
        // A state below 256 takes in one byte. In arithmetic, for a branch would be missed as often as not.
        const std::uint32_t grows = (state - 256) >> 31;  // 1 or 0
        states[group * kDecodeLanes + i] = static_cast<std::uint16_t>(state << (8 * grows) | (*in & (0U - grows)));
        in += grows;
        store_element<kBytes, kRotated>(symbol, rest, out);
        rest += kBytes - 1;
        out += kBytes;
      }
      at.in[group] = in;
    }
  }
  at.escapes = escapes;
  for (std::size_t lane = 0; lane < kStep; ++lane) {
    at.low[lane / kDecodeLanes][lane % kDecodeLanes] = static_cast<std::uint8_t>(states[lane]);
    at.high[lane / kDecodeLanes][lane % kDecodeLanes] = static_cast<std::uint8_t>(states[lane] >> 8);
  }
}

}  // namespace

void rans_decode_scalar(RansDecoding& at, const RansDecodeTable& table, std::size_t element_bytes, bool rotated,
                        const std::uint8_t* rest, std::size_t steps, std::uint8_t* out) noexcept {
  if (element_bytes == 2) {
    (rotated ? decode<2, true> : decode<2, false>)(at, table, rest, steps, out);
  } else {
    (rotated ? decode<4, true> : decode<4, false>)(at, table, rest, steps, out);
  }
}

}  // namespace bitsnap::entropy
