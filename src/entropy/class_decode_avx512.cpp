// The decoding kernel of values by class for AVX-512 with VBMI and VBMI2: the tables of all classes lie in registers of
// 64 bytes, and the index of a slot is searched for in four steps; called only where the machine has both.
#include "entropy/class_decode_kernel.hpp"

#include "entropy/octave_symbols.hpp"
#include "entropy/rans_lanes_avx512.hpp"

namespace bitsnap::entropy {
namespace {

struct Table {
  __m512i plans;
  __m512i starts_ahead[4];  // of the index that is 8, 4, 2 and 1 places behind an index
  __m512i symbols;
  IndexTable by_index;
};

inline Table make_table(const ClassDecodeTable& from) noexcept {
  Table table;
  table.plans = _mm512_load_si512(from.plans);
  table.symbols = _mm512_load_si512(from.symbols);
  table.by_index = {_mm512_load_si512(from.starts), _mm512_load_si512(from.frequencies)};
  for (int i = 0; i < 4; ++i) table.starts_ahead[i] = _mm512_load_si512(from.starts_ahead[i]);
  return table;
}

// The symbol index of each slot, by a binary search in four steps among the indexes of its class.
inline __m512i indexes_of(const Table& table, __m512i slots, __m512i classes) noexcept {
  __m512i indexes = classes;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __mmask64 reached = _mm512_cmpge_epu8_mask(slots, _mm512_permutexvar_epi8(indexes, table.starts_ahead[i]));
    indexes = _mm512_mask_add_epi8(indexes, reached, indexes, _mm512_set1_epi8(static_cast<char>(8 >> i)));
  }
  return indexes;
}

// Bytes at even and at odd places as words.
struct Halves {
  __m512i even;
  __m512i odd;
};

inline Halves halves_of(__m512i bytes) noexcept {
  return {_mm512_and_si512(bytes, _mm512_set1_epi16(0xff)), _mm512_srli_epi16(bytes, 8)};
}

// The next `widths` bits (at most 7) for each of 64 bytes, with other bits above them. They are at most 56 bytes: what
// each eight of the bytes take from lies within nine, and is brought to them as a word.
inline __m512i take_bits(const std::uint8_t* from, std::uint64_t& bit, __m512i widths) noexcept {
  // Bits up to and with each byte, of its eight.
  __m512i ends = _mm512_add_epi8(widths, _mm512_slli_epi64(widths, 8));
  ends = _mm512_add_epi8(ends, _mm512_slli_epi64(ends, 16));
  ends = _mm512_add_epi8(ends, _mm512_slli_epi64(ends, 32));
  const __m512i word_widths = _mm512_srli_epi64(ends, 56);
  const __m512i zero = _mm512_setzero_si512();
  __m512i word_ends = _mm512_add_epi64(word_widths, _mm512_alignr_epi64(word_widths, zero, 7));
  word_ends = _mm512_add_epi64(word_ends, _mm512_alignr_epi64(word_ends, zero, 6));
  word_ends = _mm512_add_epi64(word_ends, _mm512_alignr_epi64(word_ends, zero, 4));
  const __m512i begins =
      _mm512_add_epi64(_mm512_sub_epi64(word_ends, word_widths), _mm512_set1_epi64(static_cast<long long>(bit % 8)));

  const __m512i first_of_eight = _mm512_set4_epi64(0x0808080808080808, 0, 0x0808080808080808, 0);
  const __m512i numbers = _mm512_set1_epi64(0x0706050403020100);
  const __m512i places = _mm512_add_epi8(_mm512_shuffle_epi8(_mm512_srli_epi64(begins, 3), first_of_eight), numbers);
  const __m512i words = _mm512_permutexvar_epi8(places, _mm512_loadu_si512(from + bit / 8));
  const __m512i offsets =
      _mm512_add_epi8(_mm512_sub_epi8(ends, widths),
                      _mm512_shuffle_epi8(_mm512_and_si512(begins, _mm512_set1_epi64(7)), first_of_eight));
  bit += static_cast<std::uint64_t>(_mm_extract_epi64(_mm512_extracti64x2_epi64(word_ends, 3), 1));
  return _mm512_multishift_epi64_epi8(offsets, words);
}

template <bool kBits, bool kBytes, bool kOctaves>
void decode(ClassDecoding& at, const ClassDecodeTable& from, const std::uint8_t* contexts, std::size_t rounds,
            std::uint16_t* values, const ReadAhead& ahead) noexcept {
  const Table table = make_table(from);
  const std::uint8_t* const limit = at.limit;
  const std::uint64_t last_bit = static_cast<std::uint64_t>(limit - at.bits) * 8;
  const __m512i width_masks = broadcast_table(
      reinterpret_cast<const std::uint8_t*>("\x00\x01\x03\x07\x0f\x1f\x3f\x7f\x00\x01\x03\x07\x0f\x1f\x3f"));
  // Words of the two halves in turn.
  const __m512i front_order = byte_order([](unsigned i) { return i % 2 != 0 ? 0 : i / 4 + i / 2 % 2 * 32; });
  const __m512i rear_order = byte_order([](unsigned i) { return i % 2 != 0 ? 0 : 16 + i / 4 + i / 2 % 2 * 32; });
  const __m512i octaves = _mm512_load_si512(kOctaveSymbols.low_bits);
  const __m512i heads = _mm512_load_si512(kOctaveSymbols.heads);
  LaneGroups<DecodeLanes> groups(at, at.in);
  const std::uint8_t* bytes = at.bytes;
  const std::uint8_t* escapes = at.escapes;
  std::uint64_t bit = at.bit;
  ReadAheadCursor reading(ahead, 0);
  const auto take = [&](DecodeLanes& group) {
    reading.up();
    const __m512i plans = _mm512_permutexvar_epi8(_mm512_loadu_si512(contexts), table.plans);
    const __m512i indexes = indexes_of(table, group.low, _mm512_and_si512(plans, _mm512_set1_epi8(0x30)));
    take_indexes(indexes, group, table.by_index, limit);
    const __m512i symbols = _mm512_permutexvar_epi8(indexes, table.symbols);
    const __mmask64 escaped = _mm512_cmpeq_epi8_mask(symbols, _mm512_set1_epi8(15));
    __m512i shifts = plans;  // in the lower four bits
    Halves half;
    if constexpr (kOctaves) {
      const __m512i fifteen = _mm512_set1_epi8(15);
      const __m512i octave_indexes =
          _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(plans, 2), _mm512_set1_epi8(0x30)), symbols);
      shifts = _mm512_add_epi8(_mm512_and_si512(plans, fifteen), _mm512_permutexvar_epi8(octave_indexes, octaves));
      shifts = _mm512_min_epu8(shifts, _mm512_set1_epi8(kMostLowBits));
      half = halves_of(_mm512_permutexvar_epi8(octave_indexes, heads));
    } else {
      half = halves_of(symbols);
    }
    if constexpr (kBits) {
      const __m512i widths = _mm512_and_si512(shifts, _mm512_set1_epi8(7));
      const Halves width = halves_of(widths);
      bit = bit < last_bit ? bit : last_bit;
      const Halves low =
          halves_of(_mm512_and_si512(take_bits(at.bits, bit, widths), _mm512_shuffle_epi8(width_masks, widths)));
      half.even = _mm512_or_si512(_mm512_sllv_epi16(half.even, width.even), low.even);
      half.odd = _mm512_or_si512(_mm512_sllv_epi16(half.odd, width.odd), low.odd);
    }
    if constexpr (kBytes) {
      const __m512i eight = _mm512_set1_epi8(8);
      const __mmask64 whole = _mm512_test_epi8_mask(shifts, eight);
      bytes = held(bytes, limit);
      const Halves low = halves_of(_mm512_maskz_expand_epi8(whole, _mm512_loadu_si512(bytes)));
      bytes += count_lanes(whole);
      const Halves up = halves_of(_mm512_and_si512(shifts, eight));
      half.even = _mm512_or_si512(_mm512_sllv_epi16(half.even, up.even), low.even);
      half.odd = _mm512_or_si512(_mm512_sllv_epi16(half.odd, up.odd), low.odd);
    }
    const __m512i front = _mm512_permutex2var_epi16(half.even, front_order, half.odd);
    const __m512i rear = _mm512_permutex2var_epi16(half.even, rear_order, half.odd);
    const auto front_escaped = static_cast<__mmask32>(escaped);
    const auto rear_escaped = static_cast<__mmask32>(escaped >> 32);
    escapes = held(escapes, limit);
    _mm512_storeu_si512(values, _mm512_mask_expand_epi16(front, front_escaped, _mm512_loadu_si512(escapes)));
    escapes += 2 * _mm_popcnt_u32(front_escaped);
    escapes = held(escapes, limit);
    _mm512_storeu_si512(values + kDecodeLanes / 2,
                        _mm512_mask_expand_epi16(rear, rear_escaped, _mm512_loadu_si512(escapes)));
    escapes += 2 * _mm_popcnt_u32(rear_escaped);
    contexts += kDecodeLanes;
    values += kDecodeLanes;
  };
  for (; rounds > 0; --rounds) groups.up(take);
  groups.store(at, at.in);
  at.bytes = bytes;
  at.escapes = escapes;
  at.bit = bit;
}

void decode_any(ClassDecoding& at, const ClassDecodeTable& table, const std::uint8_t* contexts, std::size_t rounds,
                std::uint16_t* values, const ReadAhead& ahead) noexcept {
  if (table.has_octaves) {
    decode<true, true, true>(at, table, contexts, rounds, values, ahead);
  } else if (table.has_bytes) {
    decode<true, true, false>(at, table, contexts, rounds, values, ahead);
  } else if (table.has_bits) {
    decode<true, false, false>(at, table, contexts, rounds, values, ahead);
  } else {
    decode<false, false, false>(at, table, contexts, rounds, values, ahead);
  }
}

}  // namespace

constinit const ClassDecodeKernels ClassDecodeKernels::kAvx512 = {decode_any};

}  // namespace bitsnap::entropy
