// The decoding kernel of the lane coder for AVX-512 with VBMI and VBMI2: a group's 64 states are two registers of
// bytes, and every table lies in registers; called only where the machine has both.
#include "entropy/rans_decode_kernel.hpp"

#include "entropy/rans_lanes_avx512.hpp"

namespace bitsnap::entropy {
namespace {

// The rank of each of the 256 slots in four registers, and the rest of the table by rank.
struct Table {
  __m512i ranks[4];
  __m512i symbols;
  RankTable by_rank;
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
  table.by_rank = {broadcast_table(from.starts), broadcast_table(from.frequencies)};
  table.escape_rank = _mm512_set1_epi8(static_cast<char>(from.escape_rank));
  return table;
}

// The rank of each lane's slot. A look-up in 128 bytes takes one instruction, and the slot's top bit says in which.
inline __m512i ranks_of(const Table& table, __m512i slots) noexcept {
  const __m512i below = _mm512_permutex2var_epi8(table.ranks[0], slots, table.ranks[1]);
  const __m512i above = _mm512_permutex2var_epi8(table.ranks[2], slots, table.ranks[3]);
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(slots), below, above);
}

inline DecodeLanes load_group(const RansDecoding& at, std::size_t group) noexcept {
  return {_mm512_load_si512(at.low[group]), _mm512_load_si512(at.high[group]), at.in[group]};
}

inline void store_group(RansDecoding& at, std::size_t number, const DecodeLanes& group) noexcept {
  _mm512_store_si512(at.low[number], group.low);
  _mm512_store_si512(at.high[number], group.high);
  at.in[number] = group.in;
}

// The next symbol of each lane of a group.
inline __m512i next_symbols(DecodeLanes& group, const Table& table, const std::uint8_t*& escapes,
                            const std::uint8_t* limit) noexcept {
  const __m512i ranks = ranks_of(table, group.low);
  const __mmask64 escaped = _mm512_cmpge_epu8_mask(ranks, table.escape_rank);
  escapes = held(escapes, limit);
  const __m512i symbols =
      _mm512_mask_expand_epi8(_mm512_permutexvar_epi8(ranks, table.symbols), escaped, _mm512_loadu_si512(escapes));
  escapes += count_lanes(escaped);
  take_ranks(ranks, group, table.by_rank, limit);
  return symbols;
}

// How 64 symbols and their rests become elements.
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
  DecodeLanes group0 = load_group(at, 0);
  DecodeLanes group1 = load_group(at, 1);
  DecodeLanes group2 = load_group(at, 2);
  DecodeLanes group3 = load_group(at, 3);
  const std::uint8_t* escapes = at.escapes;
  const std::uint8_t* const limit = at.limit;
  const auto take = [&](DecodeLanes& group) {
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

constinit const RansDecodeKernels RansDecodeKernels::kAvx512 = {
    {{entropy::decode<1, false>, entropy::decode<1, false>},
     {entropy::decode<2, false>, entropy::decode<2, true>},
     {entropy::decode<4, false>, entropy::decode<4, true>}}};

}  // namespace bitsnap::entropy
