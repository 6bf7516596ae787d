// Shared by the AVX-512 (VBMI, VBMI2) kernels of the lane coders: 64 states as two registers of bytes, and coding one
// symbol in each with tables of 64 bytes. Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

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

inline std::size_t count_lanes(__mmask64 lanes) noexcept { return static_cast<std::size_t>(_mm_popcnt_u64(lanes)); }

// The numbers of the lanes of a register, twice: the register from place n on rotates a register down by n lanes.
template <typename Lane>
struct Turns {
  static constexpr unsigned kLanes = 64 / sizeof(Lane);
  alignas(64) Lane places[2 * kLanes] = {};

  constexpr Turns() noexcept {
    for (unsigned i = 0; i < 2 * kLanes; ++i) places[i] = static_cast<Lane>(i % kLanes);
  }
};

template <typename Lane>
inline constexpr Turns<Lane> kTurns;

// Writes the bytes that `chosen` marks, in order, so that they end at `end`; returns where they begin. The 64 bytes
// below `end` are overwritten, because masked stores are ten times as slow on some processors.
inline std::uint8_t* write_below(std::uint8_t* end, __mmask64 chosen, __m512i bytes) noexcept {
  const auto count = count_lanes(chosen);
  const __m512i turn = _mm512_loadu_si512(kTurns<std::uint8_t>.places + count);
  _mm512_storeu_si512(end - 64, _mm512_permutexvar_epi8(turn, _mm512_maskz_compress_epi8(chosen, bytes)));
  return end - count;
}

// The same for 32 words.
inline std::uint8_t* write_words_below(std::uint8_t* end, __mmask32 chosen, __m512i words) noexcept {
  const auto count = static_cast<std::size_t>(_mm_popcnt_u32(chosen));
  const __m512i turn = _mm512_loadu_si512(kTurns<std::uint16_t>.places + count);
  _mm512_storeu_si512(end - 64, _mm512_permutexvar_epi16(turn, _mm512_maskz_compress_epi16(chosen, words)));
  return end - 2 * count;
}

struct Divided {
  __m512i quotient;
  __m512i remainder;
};

// Divides 16-bit states by frequencies; see rans_reciprocal().
inline Divided divide(__m512i states, __m512i frequencies, __m512i reciprocals) noexcept {
  const __m512i near = _mm512_mulhi_epu16(states, reciprocals);
  const __m512i over = _mm512_sub_epi16(states, _mm512_mullo_epi16(near, frequencies));
  const __mmask32 one_less = _mm512_cmpge_epu16_mask(over, frequencies);
  return {_mm512_mask_add_epi16(near, one_less, near, _mm512_set1_epi16(1)),
          _mm512_mask_sub_epi16(over, one_less, over, frequencies)};
}

// The encoder's table, by symbol index.
struct CodeTable {
  __m512i starts;
  __m512i frequencies;
  __m512i reciprocals_low;
  __m512i reciprocals_high;
};

struct EncodeLanes {
  __m512i low;
  __m512i high;
  std::uint8_t* stream;
};

// Codes the symbol of one index in each lane.
inline void put_indexes(__m512i index, EncodeLanes& lanes, const CodeTable& table) noexcept {
  // States that the symbol would carry beyond 16 bits give up their lower byte.
  const __m512i frequencies = _mm512_permutexvar_epi8(index, table.frequencies);
  const __mmask64 shrinks = _mm512_cmpge_epu8_mask(lanes.high, frequencies);
  lanes.stream = write_below(lanes.stream, shrinks, lanes.low);
  const __m512i low = _mm512_mask_mov_epi8(lanes.low, shrinks, lanes.high);
  const __m512i high = _mm512_mask_mov_epi8(lanes.high, shrinks, _mm512_setzero_si512());

  const __m512i zero = _mm512_setzero_si512();
  const __m512i reciprocals_low = _mm512_permutexvar_epi8(index, table.reciprocals_low);
  const __m512i reciprocals_high = _mm512_permutexvar_epi8(index, table.reciprocals_high);
  const Divided lower = divide(_mm512_unpacklo_epi8(low, high), _mm512_unpacklo_epi8(frequencies, zero),
                               _mm512_unpacklo_epi8(reciprocals_low, reciprocals_high));
  const Divided upper = divide(_mm512_unpackhi_epi8(low, high), _mm512_unpackhi_epi8(frequencies, zero),
                               _mm512_unpackhi_epi8(reciprocals_low, reciprocals_high));
  lanes.high = _mm512_packus_epi16(lower.quotient, upper.quotient);
  lanes.low = _mm512_add_epi8(_mm512_packus_epi16(lower.remainder, upper.remainder),
                              _mm512_permutexvar_epi8(index, table.starts));
}

// The decoder's table, by symbol index.
struct IndexTable {
  __m512i starts;
  __m512i frequencies;
};

struct DecodeLanes {
  __m512i low;
  __m512i high;
  const std::uint8_t* stream;
};

inline const std::uint8_t* held(const std::uint8_t* cursor, const std::uint8_t* limit) noexcept {
  return cursor < limit ? cursor : limit;
}

// Decodes: removes the symbols with these indexes from the states.
inline void take_indexes(__m512i indexes, DecodeLanes& lanes, const IndexTable& table,
                         const std::uint8_t* limit) noexcept {
  const __m512i frequencies = _mm512_permutexvar_epi8(indexes, table.frequencies);
  const __m512i excess = _mm512_sub_epi8(lanes.low, _mm512_permutexvar_epi8(indexes, table.starts));

  // frequency * high + excess in 16 bits, for even and odd lanes separately.
  const __m512i low_bytes = _mm512_set1_epi16(0xff);
  const __m512i even = _mm512_add_epi16(
      _mm512_mullo_epi16(_mm512_and_si512(frequencies, low_bytes), _mm512_and_si512(lanes.high, low_bytes)),
      _mm512_and_si512(excess, low_bytes));
  const __m512i odd =
      _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(frequencies, 8), _mm512_srli_epi16(lanes.high, 8)),
                       _mm512_srli_epi16(excess, 8));
  const __m512i low = _mm512_mask_blend_epi8(kOddBytes, even, _mm512_slli_epi16(odd, 8));
  const __m512i high = _mm512_mask_blend_epi8(kOddBytes, _mm512_srli_epi16(even, 8), odd);

  // States below 256 take the next byte of the stream.
  const __mmask64 grows = _mm512_testn_epi8_mask(high, high);
  lanes.stream = held(lanes.stream, limit);
  lanes.high = _mm512_mask_mov_epi8(high, grows, low);
  lanes.low = _mm512_mask_expand_epi8(low, grows, _mm512_loadu_si512(lanes.stream));
  lanes.stream += count_lanes(grows);
}

// The states of the four groups of a coder. They are members instead of an array, so that every compiler keeps them in
// registers.
template <typename Lanes>
class LaneGroups {
 public:
  // `streams` are the cursors of the groups.
  template <typename Coding, typename Cursor>
  LaneGroups(const Coding& at, Cursor* const (&streams)[4]) noexcept
      : group0_(load(at, streams, 0)),
        group1_(load(at, streams, 1)),
        group2_(load(at, streams, 2)),
        group3_(load(at, streams, 3)) {}

  template <typename Body>
  [[gnu::always_inline]] void up(const Body& body) noexcept {
    body(group0_);
    body(group1_);
    body(group2_);
    body(group3_);
  }
  template <typename Body>
  [[gnu::always_inline]] void down(const Body& body) noexcept {
    body(group3_);
    body(group2_);
    body(group1_);
    body(group0_);
  }

  template <typename Coding, typename Cursor>
  void store(Coding& at, Cursor* (&streams)[4]) noexcept {
    std::size_t group = 0;
    up([&](const Lanes& lanes) {
      _mm512_store_si512(at.low[group], lanes.low);
      _mm512_store_si512(at.high[group], lanes.high);
      streams[group++] = lanes.stream;
    });
  }

 private:
  template <typename Coding, typename Cursor>
  static Lanes load(const Coding& at, Cursor* const (&streams)[4], std::size_t group) noexcept {
    return {_mm512_load_si512(at.low[group]), _mm512_load_si512(at.high[group]), streams[group]};
  }

  Lanes group0_;
  Lanes group1_;
  Lanes group2_;
  Lanes group3_;
};

}  // namespace
}  // namespace bitsnap::entropy
