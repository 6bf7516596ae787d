// The AVX-512 (VBMI, VBMI2) decoding kernel of the lane coder: the 64 states of a group are two registers of bytes, and
// every table lies in registers.
#include "entropy/rans_decode_kernel.hpp"

#include "entropy/rans_lanes_avx512.hpp"

namespace bitsnap::entropy {
namespace {

// The symbol index of each of the 256 slots in four registers, and the rest of the table by index.
struct Table {
  __m512i indexes[4];
  __m512i symbols;
  IndexTable by_index;
  __m512i escape_index;
};

inline Table make_table(const RansDecodeTable& from) noexcept {
  Table table;
  const __m512i places = byte_order([](unsigned at) { return at; });
  for (int part = 0; part < 4; ++part) {
    const __m512i slots = _mm512_add_epi8(places, _mm512_set1_epi8(static_cast<char>(64 * part)));
    __m512i indexes = _mm512_setzero_si512();
    for (int index = 1; index < 16; ++index) {
      const __m512i start = _mm512_set1_epi8(static_cast<char>(from.starts[index]));
      const __mmask64 reached = _mm512_cmpge_epu8_mask(slots, start);
      indexes = _mm512_mask_mov_epi8(indexes, reached, _mm512_set1_epi8(static_cast<char>(index)));
    }
    table.indexes[part] = indexes;
  }
  table.symbols = broadcast_table(from.symbols);
  table.by_index = {broadcast_table(from.starts), broadcast_table(from.frequencies)};
  table.escape_index = _mm512_set1_epi8(static_cast<char>(from.escape_index));
  return table;
}

// The symbol index of each lane's slot. One instruction looks up in 128 bytes; the slot's top bit selects the half.
inline __m512i indexes_of(const Table& table, __m512i slots) noexcept {
  const __m512i below = _mm512_permutex2var_epi8(table.indexes[0], slots, table.indexes[1]);
  const __m512i above = _mm512_permutex2var_epi8(table.indexes[2], slots, table.indexes[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(slots), below, above);
}

// The next symbol of each lane of a group.
inline __m512i next_symbols(DecodeLanes& group, const Table& table, const std::uint8_t*& escapes,
                            const std::uint8_t* limit) noexcept {
  const __m512i indexes = indexes_of(table, group.low);
  const __mmask64 escaped = _mm512_cmpge_epu8_mask(indexes, table.escape_index);
  escapes = held(escapes, limit);
  const __m512i symbols =
      _mm512_mask_expand_epi8(_mm512_permutexvar_epi8(indexes, table.symbols), escaped, _mm512_loadu_si512(escapes));
  escapes += count_lanes(escaped);
  take_indexes(indexes, group, table.by_index, limit);
  return symbols;
}

// Joins 64 symbols and the lower bytes to elements.
template <std::size_t kBytes, bool kRotated>
struct Elements;

template <bool kRotated>
struct Elements<1, kRotated> {
  static void store(__m512i symbols, const std::uint8_t*, std::uint8_t* out) noexcept {
    _mm512_storeu_si512(out, symbols);
  }
};

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
void decode(RansDecoding& at, const RansDecodeTable& from, const std::uint8_t* rest, std::size_t rounds,
            std::uint8_t* out) noexcept {
  constexpr std::size_t kRest = kDecodeLanes * (kBytes - 1);
  constexpr std::size_t kOut = kDecodeLanes * kBytes;
  const Elements<kBytes, kRotated> elements;
  if (from.single) {
    const __m512i symbols = _mm512_set1_epi8(static_cast<char>(from.symbols[0]));
    for (std::size_t i = 0; i < rounds * kDecodeGroups; ++i) elements.store(symbols, rest + i * kRest, out + i * kOut);
    return;
  }
  const Table table = make_table(from);
  LaneGroups<DecodeLanes> groups(at, at.in);
  const std::uint8_t* escapes = at.escapes;
  const std::uint8_t* const limit = at.limit;
  const auto take = [&](DecodeLanes& group) {
    elements.store(next_symbols(group, table, escapes, limit), rest, out);
    rest += kRest;
    out += kOut;
  };
  for (; rounds > 0; --rounds) groups.up(take);
  groups.store(at, at.in);
  at.escapes = escapes;
}

}  // namespace

constinit const RansDecodeKernels RansDecodeKernels::kAvx512 = {
    {{entropy::decode<1, false>, entropy::decode<1, false>},
     {entropy::decode<2, false>, entropy::decode<2, true>},
     {entropy::decode<4, false>, entropy::decode<4, true>}}};

}  // namespace bitsnap::entropy
