// The scalar kernel that decodes values by class, and the reference for the other kernels.
#include "entropy/class_decode_kernel.hpp"

#include "entropy/octave_symbols.hpp"

namespace bitsnap::entropy {
namespace {

// The entry of a slot: its frequency in bits 0-7, the slot minus the start in bits 8-15, the symbol from bit 16.
using Entry = std::uint32_t;

void fill_entries(const ClassDecodeTable& table, Entry* entries) noexcept {
  for (unsigned first = 0; first < 64; first += 16) {
    unsigned index = first;
    for (unsigned slot = 0; slot < 256; ++slot) {
      while (index < first + 15 && table.starts[index + 1] <= slot) ++index;
      entries[first * 16 + slot] =
          Entry{table.frequencies[index]} | (slot - table.starts[index]) << 8 | Entry{table.symbols[index]} << 16;
    }
  }
}

inline const std::uint8_t* held(const std::uint8_t* cursor, const std::uint8_t* limit) noexcept {
  return cursor < limit ? cursor : limit;
}

// Whether a lane takes stream bytes, low bits or low bytes is random, so branches would be mispredicted. Only escapes,
// which are rare, have a branch.
template <bool kBytes, bool kOctaves>
void decode(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts, std::size_t rounds,
            std::uint16_t* values, const ReadAhead& ahead) noexcept {
  constexpr std::size_t kWordLanes = 8;  // together at most 56 bits, one load
  Entry entries[4 * 256];
  fill_entries(table, entries);
  std::uint8_t plans[32];
  __builtin_memcpy(plans, table.plans, sizeof plans);
  const std::uint8_t* const limit = at.limit;
  const std::uint8_t* const bits = at.bits;
  const std::uint64_t last_bit = static_cast<std::uint64_t>(limit - bits) * 8;
  const std::uint8_t* bytes = at.bytes;
  const std::uint8_t* escapes = at.escapes;
  std::uint64_t bit = at.bit;
  ReadAheadCursor reading(ahead, 0);
  for (std::size_t part = 0; part < rounds * kDecodeGroups; ++part) {
    const std::size_t group = part % kDecodeGroups;
    std::uint8_t* const low = at.low[group];
    std::uint8_t* const high = at.high[group];
    const std::uint8_t* in = held(at.in[group], limit);
    if constexpr (kBytes) bytes = held(bytes, limit);
    bit = bit < last_bit ? bit : last_bit;
    reading.up();
    for (std::size_t first = 0; first < kDecodeLanes; first += kWordLanes) {
      std::uint64_t word;
      __builtin_memcpy(&word, bits + bit / 8, sizeof word);
      word >>= bit % 8;
      unsigned taken = 0;
#pragma GCC unroll 8
      for (std::size_t lane = first; lane < first + kWordLanes; ++lane) {
        const std::size_t i = part * kDecodeLanes + lane;
        const unsigned plan = plans[contexts[i] & 31];
        const Entry entry = entries[(plan & 0x30) * 16 + low[lane]];
        const std::uint32_t state = (entry & 255) * high[lane] + (entry >> 8 & 255);
        const std::uint32_t grows = (state - 256) >> 31;
        const std::uint32_t next = state << (8 * grows) | (*in & (0 - grows));
        in += grows;
        low[lane] = static_cast<std::uint8_t>(next);
        high[lane] = static_cast<std::uint8_t>(next >> 8);

        const unsigned symbol = entry >> 16;
        unsigned head = symbol;
        unsigned shift = plan & 15;
        if constexpr (kOctaves) {
          const unsigned index = (plan >> 2 & 0x30) + symbol;
          head = kOctaveSymbols.heads[index];
          shift += kOctaveSymbols.low_bits[index];
          shift = shift < kMostLowBits ? shift : kMostLowBits;
        }
        const unsigned width = shift & 7;
        unsigned value = head << width | (static_cast<unsigned>(word) & ((1U << width) - 1));
        word >>= width;
        taken += width;
        if constexpr (kBytes) {
          const unsigned whole = shift & 8;
          value = value << whole | (*bytes & (0 - (whole >> 3)) & 255);
          bytes += whole >> 3;
        }
        values[i] = static_cast<std::uint16_t>(value);
        if (symbol == 15) [[unlikely]] {
          escapes = held(escapes, limit);
          __builtin_memcpy(values + i, escapes, 2);
          escapes += 2;
        }
      }
      bit += taken;
    }
    at.in[group] = in;
  }
  at.bytes = bytes;
  at.escapes = escapes;
  at.bit = bit;
}

void decode_any(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts, std::size_t rounds,
                std::uint16_t* values, const ReadAhead& ahead) noexcept {
  const auto kernel = table.has_octaves ? decode<true, true>
                      : table.has_bytes ? decode<true, false>
                                        : decode<false, false>;
  kernel(at, table, contexts, rounds, values, ahead);
}

}  // namespace

constinit const ClassDecodeKernels ClassDecodeKernels::kScalar = {decode_any};

}  // namespace bitsnap::entropy
