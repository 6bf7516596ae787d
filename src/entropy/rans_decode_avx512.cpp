// The decoding kernel of the lane coder for AVX-512 with VBMI and VBMI2: a group's 64 states are two registers of
// bytes, and every table lies in registers; called only where the machine has both.
#include "entropy/rans_decode_kernel.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace bitsnap::entropy {
namespace {

constexpr __mmask64 kOddBytes = 0xAAAAAAAAAAAAAAAA;

// order[i] = from(i), for 64 places.
template <typename From>
inline __m512i byte_order(From from) noexcept {
  alignas(64) std::uint8_t order[64];
  for (unsigned i = 0; i < 64; ++i) order[i] = static_cast<std::uint8_t>(from(i));
  return _mm512_load_si512(order);
}

inline __m512i broadcast_table(const std::uint8_t* sixteen) noexcept {
  return _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(sixteen)));
}

// The rank of each of the 256 slots in four registers, and the rest of the table by rank.
struct Table {
  __m512i ranks[4];
  __m512i symbols;
  __m512i starts;
  __m512i frequencies;
  __m512i escape_rank;
};

inline Table make_table(const RansDecodeTable& from) noexcept {
  Table table;
  const __m512i places = byte_order([](unsigned at) { return at; });
  for (int part = 0; part < 4; ++part) {
    const __m512i slots = _mm512_add_epi8(places, _mm512_set1_epi8(static_cast<char>(64 * part)));
    __m512i ranks = _mm512_setzero_si512();
    for (int rank = 1; rank < 16; ++rank) {
      const __m512i start = _mm512_set1_epi8(static_cast<char>(from.starts[rank]));
      const __mmask64 reached = _mm512_cmpge_epu8_mask(slots, start);
      ranks = _mm512_mask_mov_epi8(ranks, reached, _mm512_set1_epi8(static_cast<char>(rank)));
    }
    table.ranks[part] = ranks;
  }
  table.symbols = broadcast_table(from.symbols);
  table.starts = broadcast_table(from.starts);
  table.frequencies = broadcast_table(from.frequencies);
  table.escape_rank = _mm512_set1_epi8(static_cast<char>(from.escape_rank));
  return table;
}

// The rank of each lane's slot. A look-up in 128 bytes takes one instruction, and the slot's top bit says in which.
inline __m512i ranks_of(const Table& table, __m512i slots) noexcept {
  const __m512i below = _mm512_permutex2var_epi8(table.ranks[0], slots, table.ranks[1]);
  const __m512i above = _mm512_permutex2var_epi8(table.ranks[2], slots, table.ranks[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(slots), below, above);
}

inline std::size_t count_lanes(__mmask64 lanes) noexcept { return static_cast<std::size_t>(_mm_popcnt_u64(lanes)); }

inline const std::uint8_t* held(const std::uint8_t* cursor, const std::uint8_t* limit) noexcept {
  return cursor < limit ? cursor : limit;
}

struct Group {
  __m512i low;
  __m512i high;
  const std::uint8_t* in;
};

inline Group load_group(const RansDecoding& at, std::size_t group) noexcept {
  return {_mm512_load_si512(at.low[group]), _mm512_load_si512(at.high[group]), at.in[group]};
}

inline void store_group(RansDecoding& at, std::size_t number, const Group& group) noexcept {
  _mm512_store_si512(at.low[number], group.low);
  _mm512_store_si512(at.high[number], group.high);
  at.in[number] = group.in;
}

// The next symbol of each lane of a group.
inline __m512i next_symbols(Group& group, const Table& table, const std::uint8_t*& escapes,
                            const std::uint8_t* limit) noexcept {
  const __m512i ranks = ranks_of(table, group.low);
  const __m512i frequencies = _mm512_permutexvar_epi8(ranks, table.frequencies);
  const __m512i excess = _mm512_sub_epi8(group.low, _mm512_permutexvar_epi8(ranks, table.starts));

  const __mmask64 escaped = _mm512_cmpge_epu8_mask(ranks, table.escape_rank);
  escapes = held(escapes, limit);
  const __m512i symbols =
      _mm512_mask_expand_epi8(_mm512_permutexvar_epi8(ranks, table.symbols), escaped, _mm512_loadu_si512(escapes));
  escapes += count_lanes(escaped);

  // frequency * high + excess, in 16 bits, of the lanes at even and at odd bytes.
  const __m512i low_bytes = _mm512_set1_epi16(0xff);
  const __m512i even = _mm512_add_epi16(
      _mm512_mullo_epi16(_mm512_and_si512(frequencies, low_bytes), _mm512_and_si512(group.high, low_bytes)),
      _mm512_and_si512(excess, low_bytes));
  const __m512i odd =
      _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(frequencies, 8), _mm512_srli_epi16(group.high, 8)),
                       _mm512_srli_epi16(excess, 8));
  const __m512i low = _mm512_mask_blend_epi8(kOddBytes, even, _mm512_slli_epi16(odd, 8));
  const __m512i high = _mm512_mask_blend_epi8(kOddBytes, _mm512_srli_epi16(even, 8), odd);

  // States below 256 move up by a byte and take the next of the stream in.
  const __mmask64 grows = _mm512_testn_epi8_mask(high, high);
  group.in = held(group.in, limit);
  group.high = _mm512_mask_mov_epi8(high, grows, low);
  group.low = _mm512_mask_expand_epi8(low, grows, _mm512_loadu_si512(group.in));
  group.in += count_lanes(grows);
  return symbols;
}

// How 64 symbols and their rests become elements.
template <std::size_t kBytes, bool kRotated>
struct Elements;

template <bool kRotated>
struct Elements<2, kRotated> {
  const __m512i front = byte_order([](unsigned at) { return at / 2 + at % 2 * 64; });
  const __m512i rear = byte_order([](unsigned at) { return 32 + at / 2 + at % 2 * 64; });

  static __m512i turned(__m512i elements) noexcept {
    return kRotated ? _mm512_shrdi_epi16(elements, elements, 1) : elements;
  }
  void store(__m512i symbols, const std::uint8_t* rest, std::uint8_t* out) const noexcept {
    const __m512i rests = _mm512_loadu_si512(rest);
    _mm512_storeu_si512(out, turned(_mm512_permutex2var_epi8(rests, front, symbols)));
    _mm512_storeu_si512(out + 64, turned(_mm512_permutex2var_epi8(rests, rear, symbols)));
  }
};

template <bool kRotated>
struct Elements<4, kRotated> {
  const __m512i spread = byte_order([](unsigned at) { return at / 4 * 3 + at % 4; });
  const __m512i quarter = byte_order([](unsigned at) { return at / 4; });

  void store(__m512i symbols, const std::uint8_t* rest, std::uint8_t* out) const noexcept {
    constexpr __mmask64 kTopBytes = 0x8888888888888888;
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const __m512i rests = _mm512_permutexvar_epi8(spread, _mm512_loadu_si512(rest + 48 * q));
      const __m512i places = _mm512_add_epi8(quarter, _mm512_set1_epi8(static_cast<char>(16 * q)));
      __m512i elements = _mm512_mask_permutexvar_epi8(rests, kTopBytes, places, symbols);
      if constexpr (kRotated) elements = _mm512_ror_epi32(elements, 1);
      _mm512_storeu_si512(out + 64 * q, elements);
    }
  }
};

template <std::size_t kBytes, bool kRotated>
void decode(RansDecoding& at, const RansDecodeTable& from, const std::uint8_t* rest, std::size_t steps,
            std::uint8_t* out) noexcept {
  constexpr std::size_t kRest = kDecodeLanes * (kBytes - 1);
  constexpr std::size_t kOut = kDecodeLanes * kBytes;
  const Elements<kBytes, kRotated> elements;
  if (from.single) {
    const __m512i symbols = _mm512_set1_epi8(static_cast<char>(from.symbols[0]));
    for (std::size_t i = 0; i < steps * kDecodeGroups; ++i) elements.store(symbols, rest + i * kRest, out + i * kOut);
    return;
  }
  const Table table = make_table(from);
  // Named one by one, so that they are in registers whatever the compiler thinks of unrolling.
  static_assert(kDecodeGroups == 4);
  Group group0 = load_group(at, 0);
  Group group1 = load_group(at, 1);
  Group group2 = load_group(at, 2);
  Group group3 = load_group(at, 3);
  const std::uint8_t* escapes = at.escapes;
  const std::uint8_t* const limit = at.limit;
  const auto take = [&](Group& group) {
    elements.store(next_symbols(group, table, escapes, limit), rest, out);
    rest += kRest;
    out += kOut;
  };
  for (; steps > 0; --steps) {
    take(group0);
    take(group1);
    take(group2);
    take(group3);
  }
  store_group(at, 0, group0);
  store_group(at, 1, group1);
  store_group(at, 2, group2);
  store_group(at, 3, group3);
  at.escapes = escapes;
}

}  // namespace

void rans_decode_avx512(RansDecoding& at, const RansDecodeTable& table, std::size_t element_bytes, bool rotated,
                        const std::uint8_t* rest, std::size_t steps, std::uint8_t* out) noexcept {
  if (element_bytes == 2) {
    (rotated ? decode<2, true> : decode<2, false>)(at, table, rest, steps, out);
  } else {
    (rotated ? decode<4, true> : decode<4, false>)(at, table, rest, steps, out);
  }
}

}  // namespace bitsnap::entropy
#endif
