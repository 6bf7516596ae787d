// The Huffman decoding kernel.
//
// It is fast for two reasons. One look-up of 11 bits gives every symbol that ends within them. The position of a
// stream is three words (bits, in, out): a marker bit after the last loaded bit lets a count of trailing zeros tell how
// far the stream has moved, and eight streams hide each other's latency.
#include "entropy/huffman_decode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

using Lanes = std::uint64_t __attribute__((vector_size(32), aligned(8), may_alias));

constexpr unsigned kTableBits = 11;
constexpr std::uint64_t kSymbolField = 0x00ffffffffffff00U;
constexpr unsigned kMaxSymbolsPerEntry = 6;
constexpr unsigned kLookupsPerLoad = 5;      // 7 bits left from a byte, 5 * 11 bits, and the marker fit in 64
constexpr std::ptrdiff_t kInPerRound = 7;    // bytes, at most
constexpr std::ptrdiff_t kOutPerRound = 32;  // 5 * 6 symbols, and the overhang of the last store of 8
constexpr std::size_t kGroup = 4;            // streams whose states are in registers together

inline std::uint64_t prepend(std::uint64_t entry, std::uint64_t symbol_and_length) noexcept {
  return ((entry & kSymbolField) << 8) + (entry & ~kSymbolField) + symbol_and_length;
}

// table_k = for each symbol s in code order: s, followed by the entry of table_(k - length of s) for the remaining
// bits.
inline void build_table(const HuffmanCode& code, std::uint64_t* table) noexcept {
  unsigned shortest = 1;
  while (code.first[shortest + 1] == 0) ++shortest;
  table[1] = 0;
  for (unsigned k = 1; k <= kTableBits; ++k) {
    if (k > kTableBits - shortest && k < kTableBits) continue;  // no look-up needs this table
    std::uint64_t* to = table + (std::size_t{1} << k);
    std::uint64_t* const end = to + (std::size_t{1} << k);
    for (unsigned length = shortest; length <= k; ++length) {
      const std::uint64_t* const rest = table + (std::size_t{1} << (k - length));
      const std::size_t entries = std::size_t{1} << (k - length);
      for (std::size_t i = code.first[length]; i < code.first[length + 1]; ++i) {
        const std::uint64_t add = (std::uint64_t{1} << 56) | (std::uint64_t{code.symbols[i]} << 8) | length;
        if (shortest == 1 && k - length > kMaxSymbolsPerEntry - 1) {
          // With a code of one bit, the entry may be full already; then only the first five bits are used.
          const unsigned drop = k - length - (kMaxSymbolsPerEntry - 1);
          const std::uint64_t* const shorter = table + (std::size_t{1} << (kMaxSymbolsPerEntry - 1));
          for (std::size_t e = 0; e < entries; ++e) {
            const std::uint64_t entry = (rest[e] >> 56) == kMaxSymbolsPerEntry ? shorter[e >> drop] : rest[e];
            to[e] = prepend(entry, add);
          }
        } else if (entries >= 4) {
          for (std::size_t e = 0; e < entries; e += 4) {
            const Lanes entry = *reinterpret_cast<const Lanes*>(rest + e);
            *reinterpret_cast<Lanes*>(to + e) = ((entry & kSymbolField) << 8) + (entry & ~kSymbolField) + add;
          }
        } else {
          for (std::size_t e = 0; e < entries; ++e) to[e] = prepend(rest[e], add);
        }
        to += entries;
      }
    }
    while (to != end) *to++ = 0;  // prefixes of longer codes
  }
}

inline std::uint64_t load_big_endian(const std::uint8_t* from) noexcept {
  std::uint64_t value;
  __builtin_memcpy(&value, from, 8);
  return __builtin_bswap64(value);
}

struct Position {
  std::uint64_t bits;  // the next bit is on top; trailing zeros = bits used since `in`
  const std::uint8_t* in;
  std::uint8_t* out;
};

inline void reload(Position& at) noexcept {
  const unsigned used = static_cast<unsigned>(__builtin_ctzll(at.bits));
  at.in += used >> 3;
  at.bits = (load_big_endian(at.in) | 1) << (used & 7);
}

inline void look_up(Position& at, const std::uint64_t* table) noexcept {
  const std::uint64_t entry = table[at.bits >> (64 - kTableBits)];
  at.bits <<= entry & 63;
  const std::uint64_t symbols = entry >> 8;
  __builtin_memcpy(at.out, &symbols, 8);
  at.out += entry >> 56;
}

// The number of rounds that stay inside input and output for any bits.
inline std::ptrdiff_t safe_rounds(const Position& at, const std::uint8_t* readable_end,
                                  const std::uint8_t* out_end) noexcept {
  const std::ptrdiff_t by_input = (readable_end - at.in - 8) / kInPerRound;
  const std::ptrdiff_t by_output = (out_end - at.out) / kOutPerRound;
  return by_input < by_output ? by_input : by_output;
}

template <std::size_t kCount>
inline void decode_rounds(Position* positions, std::ptrdiff_t rounds, const std::uint64_t* table) noexcept {
  Position at[kCount];
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kCount; ++s) at[s] = positions[s];
  do {
#pragma GCC unroll 4
    for (std::size_t s = 0; s < kCount; ++s) reload(at[s]);
#pragma GCC unroll 5
    for (unsigned i = 0; i < kLookupsPerLoad; ++i) {
#pragma GCC unroll 4
      for (std::size_t s = 0; s < kCount; ++s) look_up(at[s], table);
    }
  } while (--rounds > 0);
#pragma GCC unroll 4
  for (std::size_t s = 0; s < kCount; ++s) positions[s] = at[s];
}

// Decodes the rest of one stream with bounds checks. Returns whether it ends at the end of its input.
inline bool finish(const HuffmanCode& code, const HuffmanStream& stream, Position at, const std::uint8_t* readable_end,
                   const std::uint64_t* table) noexcept {
  for (std::ptrdiff_t rounds = safe_rounds(at, readable_end, stream.out_end); rounds > 0;
       rounds = safe_rounds(at, readable_end, stream.out_end)) {
    decode_rounds<1>(&at, rounds, table);
  }
  const std::size_t size_bits = static_cast<std::size_t>(stream.in_end - stream.in) * 8;
  const std::size_t readable = static_cast<std::size_t>(readable_end - stream.in);
  std::size_t bit = static_cast<std::size_t>(at.in - stream.in) * 8 + static_cast<unsigned>(__builtin_ctzll(at.bits));
  std::uint8_t* out = at.out;
  while (bit <= size_bits) {
    const std::size_t byte = bit / 8;
    std::uint64_t bits = 0;
    if (byte + 8 <= readable) {
      bits = load_big_endian(stream.in + byte);
    } else {
      for (std::size_t i = 0; i < 8 && byte + i < readable; ++i) {
        bits |= std::uint64_t{stream.in[byte + i]} << (56 - 8 * i);
      }
    }
    bits <<= bit % 8;
    if (out == stream.out_end) {
      const std::size_t padding = size_bits - bit;
      return padding < 8 && (padding == 0 || bits >> (64 - padding) == 0);
    }
    const std::uint64_t entry = table[bits >> (64 - kTableBits)];
    const std::uint64_t symbols = entry >> 8;
    if (stream.out_end - out >= 8) {
      __builtin_memcpy(out, &symbols, 8);
      out += entry >> 56;
      bit += entry & 63;
    } else {
      *out = static_cast<std::uint8_t>(symbols);
      bit += code.lengths[*out];
      ++out;
    }
  }
  return false;  // it ran past its end
}

std::size_t decode(const HuffmanCode& code, HuffmanStream* streams, std::size_t count, const std::uint8_t* readable_end,
                   std::uint64_t* table) noexcept {
  build_table(code, table);
  const std::uint64_t* const look_up_table = table + (std::size_t{1} << kTableBits);
  Position at[2 * kGroup];
  for (std::size_t s = 0; s < count; ++s) at[s] = {std::uint64_t{1}, streams[s].in, streams[s].out};
  while (count == 2 * kGroup) {
    std::ptrdiff_t rounds = safe_rounds(at[0], readable_end, streams[0].out_end);
    for (std::size_t s = 1; s < 2 * kGroup; ++s) {
      const std::ptrdiff_t own = safe_rounds(at[s], readable_end, streams[s].out_end);
      rounds = own < rounds ? own : rounds;
    }
    if (rounds <= 0) break;
    decode_rounds<kGroup>(at, rounds, look_up_table);
    decode_rounds<kGroup>(at + kGroup, rounds, look_up_table);
  }
  for (std::size_t s = 0; s < count; ++s) {
    if (!finish(code, streams[s], at[s], readable_end, look_up_table)) return s;
  }
  return count;
}

}  // namespace

constinit const HuffmanDecodeKernels HuffmanDecodeKernels::BITSNAP_KERNEL_LEVEL = {entropy::decode};

}  // namespace bitsnap::entropy
