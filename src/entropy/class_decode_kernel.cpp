// The decoding kernel of values by class for the baseline of every machine, and the reference for the others.
#include "entropy/class_decode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

// What a slot of a class says: its frequency in bits 0-8, the slot less the start in 16-23, the symbol in 24-27.
using Entry = std::uint32_t;

void fill_entries(const ClassDecodeTable& table, Entry* entries) noexcept {
  for (unsigned first = 0; first < 64; first += 16) {
    unsigned rank = first;
    for (unsigned slot = 0; slot < 256; ++slot) {
      while (rank < first + 15 && table.starts[rank + 1] <= slot) ++rank;
      entries[first * 16 + slot] =
          Entry{table.frequencies[rank]} | (slot - table.starts[rank]) << 16 | Entry{table.symbols[rank]} << 24;
    }
  }
}

inline const std::uint8_t* held(const std::uint8_t* cursor, const std::uint8_t* limit) noexcept {
  return cursor < limit ? cursor : limit;
}

}  // namespace

void class_decode_scalar(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts,
                         std::size_t steps, std::uint16_t* values, const ReadAhead& ahead) noexcept {
  Entry entries[4 * 256];
  fill_entries(table, entries);
  const std::uint64_t last_bit = static_cast<std::uint64_t>(at.limit - at.bits) * 8;
  for (std::size_t part = 0; part < steps * kDecodeGroups; ++part) {
    const std::size_t group = part % kDecodeGroups;
    const std::uint8_t* in = held(at.in[group], at.limit);
    const std::uint8_t* bytes = held(at.bytes, at.limit);
    std::uint64_t bit = at.bit < last_bit ? at.bit : last_bit;
    ahead.ask_for(part);
    const std::uint8_t* escapes = held(at.escapes, at.limit);
    for (std::size_t lane = 0; lane < kDecodeLanes; ++lane) {
      const std::size_t i = part * kDecodeLanes + lane;
      if (lane == kDecodeLanes / 2) escapes = held(escapes, at.limit);  // two bytes each: all 64 lanes' would be 128
      const unsigned plan = table.plans[contexts[i]];
      const std::uint32_t kept = at.low[group][lane];
      const Entry entry = entries[(plan & 0x30) * 16 + kept];
      std::uint32_t state = (entry & 0x1ff) * at.high[group][lane] + (entry >> 16 & 255);
      if (state < 256) state = state << 8 | *in++;
      at.low[group][lane] = static_cast<std::uint8_t>(state);
      at.high[group][lane] = static_cast<std::uint8_t>(state >> 8);

      const unsigned symbol = entry >> 24;
      const unsigned width = plan & 7;
      std::uint16_t pair;
      __builtin_memcpy(&pair, at.bits + bit / 8, sizeof pair);
      unsigned value = symbol << width | (static_cast<unsigned>(pair) >> bit % 8 & ((1U << width) - 1));
      bit += width;
      if ((plan & 8) != 0) value = value << 8 | *bytes++;
      values[i] = static_cast<std::uint16_t>(value);
      if (symbol == 15) {
        __builtin_memcpy(values + i, escapes, 2);
        escapes += 2;
      }
    }
    at.in[group] = in;
    at.bytes = bytes;
    at.escapes = escapes;
    at.bit = bit;
  }
}

}  // namespace bitsnap::entropy
