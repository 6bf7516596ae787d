// The encoding kernel of the lane coder for AVX-512 with VBMI and VBMI2: a group's 64 states are two registers of
// bytes, and every table lies in registers; called only where the machine has both.
#include "entropy/rans_encode_kernel.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace bitsnap::entropy {
namespace {

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

struct Table {
  __m512i first;
  __m512i window;
  __m512i outlier;
  __m512i starts;
  __m512i frequencies;
  __m512i reciprocals_low;
  __m512i reciprocals_high;
};

inline Table make_table(const RansEncodeTable& from) noexcept {
  Table table;
  table.first = _mm512_set1_epi8(static_cast<char>(from.first));
  table.window = _mm512_set1_epi8(static_cast<char>(from.window));
  table.outlier = _mm512_set1_epi8(static_cast<char>(from.outlier));
  table.starts = broadcast_table(from.starts);
  table.frequencies = broadcast_table(from.frequencies);
  table.reciprocals_low = broadcast_table(from.reciprocals_low);
  table.reciprocals_high = broadcast_table(from.reciprocals_high);
  return table;
}

// 0 to 63, twice: 64 bytes from place n on turn a register down by n places.
struct Turns {
  alignas(64) std::uint8_t places[128];
};

constexpr Turns make_turns() noexcept {
  Turns turns{};
  for (unsigned i = 0; i < 128; ++i) turns.places[i] = static_cast<std::uint8_t>(i % 64);
  return turns;
}

constexpr Turns kTurns = make_turns();

// Writes those of 64 bytes that `chosen` marks, in order, so that they end at `end`; returns where they begin. The 64
// bytes below `end` are overwritten: some processors store with a mask ten times as slowly.
inline std::uint8_t* write_below(std::uint8_t* end, __mmask64 chosen, __m512i bytes) noexcept {
  const auto count = static_cast<std::size_t>(_mm_popcnt_u64(chosen));
  const __m512i turn = _mm512_loadu_si512(kTurns.places + count);
  _mm512_storeu_si512(end - 64, _mm512_permutexvar_epi8(turn, _mm512_maskz_compress_epi8(chosen, bytes)));
  return end - count;
}

struct Divided {
  __m512i quotient;
  __m512i remainder;
};

// States by frequencies, 16 bits each; see rans_reciprocal().
inline Divided divide(__m512i states, __m512i frequencies, __m512i reciprocals) noexcept {
  const __m512i near = _mm512_mulhi_epu16(states, reciprocals);
  const __m512i over = _mm512_sub_epi16(states, _mm512_mullo_epi16(near, frequencies));
  const __mmask32 one_less = _mm512_cmpge_epu16_mask(over, frequencies);
  return {_mm512_mask_add_epi16(near, one_less, near, _mm512_set1_epi16(1)),
          _mm512_mask_sub_epi16(over, one_less, over, frequencies)};
}

struct Group {
  __m512i low;
  __m512i high;
  std::uint8_t* out;
};

inline Group load_group(const RansEncoding& at, std::size_t group) noexcept {
  return {_mm512_load_si512(at.low[group]), _mm512_load_si512(at.high[group]), at.out[group]};
}

inline void store_group(RansEncoding& at, std::size_t number, const Group& group) noexcept {
  _mm512_store_si512(at.low[number], group.low);
  _mm512_store_si512(at.high[number], group.high);
  at.out[number] = group.out;
}

// Codes one symbol in each lane of a group.
inline void put_symbols(__m512i symbols, Group& group, const Table& table, std::uint8_t*& escapes) noexcept {
  __m512i index = _mm512_min_epu8(_mm512_sub_epi8(symbols, table.first), table.window);
  index = _mm512_mask_mov_epi8(index, _mm512_cmpeq_epi8_mask(symbols, table.outlier), _mm512_set1_epi8(kOutlierIndex));
  const __mmask64 escaped = _mm512_cmpeq_epi8_mask(index, table.window);
  if (escaped != 0) escapes = write_below(escapes, escaped, symbols);

  // States that the symbol would carry beyond 16 bits give their lower byte away.
  const __m512i frequencies = _mm512_permutexvar_epi8(index, table.frequencies);
  const __mmask64 shrinks = _mm512_cmpge_epu8_mask(group.high, frequencies);
  group.out = write_below(group.out, shrinks, group.low);
  const __m512i low = _mm512_mask_mov_epi8(group.low, shrinks, group.high);
  const __m512i high = _mm512_mask_mov_epi8(group.high, shrinks, _mm512_setzero_si512());

  const __m512i zero = _mm512_setzero_si512();
  const __m512i reciprocals_low = _mm512_permutexvar_epi8(index, table.reciprocals_low);
  const __m512i reciprocals_high = _mm512_permutexvar_epi8(index, table.reciprocals_high);
  const Divided lower = divide(_mm512_unpacklo_epi8(low, high), _mm512_unpacklo_epi8(frequencies, zero),
                               _mm512_unpacklo_epi8(reciprocals_low, reciprocals_high));
  const Divided upper = divide(_mm512_unpackhi_epi8(low, high), _mm512_unpackhi_epi8(frequencies, zero),
                               _mm512_unpackhi_epi8(reciprocals_low, reciprocals_high));
  group.high = _mm512_packus_epi16(lower.quotient, upper.quotient);
  group.low = _mm512_add_epi8(_mm512_packus_epi16(lower.remainder, upper.remainder),
                              _mm512_permutexvar_epi8(index, table.starts));
}

// Asks for the bytes that will be read some time later: processors foresee descending reads less well than ascending
// ones. Nothing is read, so that it does no harm below the front of the elements.
inline void prefetch_before(const std::uint8_t* in, std::size_t size) noexcept {
  constexpr std::uintptr_t kAhead = 8192;
  for (std::uintptr_t line = 0; line < size; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(in) - kAhead + line), _MM_HINT_T0);
  }
}

// How 64 elements become symbols and rests.
template <std::size_t kBytes, bool kRotated>
struct Elements;

template <bool kRotated>
struct Elements<2, kRotated> {
  // Even bytes in front and odd ones behind; of the second vector the other way round, so that one blend and one
  // shuffle bring the halves together.
  const __m512i front = byte_order([](unsigned at) { return at % 32 * 2 + at / 32; });
  const __m512i rear = byte_order([](unsigned at) { return at % 32 * 2 + 1 - at / 32; });

  static __m512i turned(__m512i elements) noexcept {
    return kRotated ? _mm512_shldi_epi16(elements, elements, 1) : elements;
  }
  __m512i take_apart(const std::uint8_t* in, std::uint8_t* rest) const noexcept {
    const __m512i even_odd = _mm512_permutexvar_epi8(front, turned(_mm512_loadu_si512(in)));
    const __m512i odd_even = _mm512_permutexvar_epi8(rear, turned(_mm512_loadu_si512(in + 64)));
    _mm512_storeu_si512(rest, _mm512_mask_blend_epi64(0xf0, even_odd, odd_even));
    return _mm512_shuffle_i64x2(even_odd, odd_even, 0x4e);
  }
};

template <bool kRotated>
struct Elements<4, kRotated> {
  // Quarter q of 64 elements with its symbols in lane 3 - q of 128 bits and its rests in the lanes behind that, so that
  // blends alone join the rests of the quarters to three vectors.
  static __m512i order_of(unsigned quarter) noexcept {
    return byte_order([=](unsigned at) {
      const unsigned turned = (at + 16 * quarter) % 64;
      return turned < 48 ? turned / 3 * 4 + turned % 3 : turned % 16 * 4 + 3;
    });
  }
  const __m512i orders[4] = {order_of(0), order_of(1), order_of(2), order_of(3)};

  __m512i take_apart(const std::uint8_t* in, std::uint8_t* rest) const noexcept {
    __m512i quarters[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      __m512i elements = _mm512_loadu_si512(in + 64 * q);
      if constexpr (kRotated) elements = _mm512_rol_epi32(elements, 1);
      quarters[q] = _mm512_permutexvar_epi8(orders[q], elements);
    }
    _mm512_storeu_si512(rest, _mm512_mask_blend_epi64(0xc0, quarters[0], quarters[1]));
    _mm512_storeu_si512(rest + 64, _mm512_mask_blend_epi64(0xf0, quarters[1], quarters[2]));
    _mm512_storeu_si512(rest + 128, _mm512_mask_blend_epi64(0xfc, quarters[2], quarters[3]));
    const __m512i rear = _mm512_mask_blend_epi64(0x30, quarters[0], quarters[1]);
    const __m512i front = _mm512_mask_blend_epi64(0x0c, quarters[3], quarters[2]);
    const __m512i backwards = _mm512_mask_blend_epi64(0xf0, front, rear);
    return _mm512_shuffle_i64x2(backwards, backwards, 0x1b);
  }
};

template <std::size_t kBytes, bool kRotated>
void encode(RansEncoding& at, const RansEncodeTable& from, const std::uint8_t* in, std::size_t steps,
            std::uint8_t* rest) noexcept {
  constexpr std::size_t kIn = kEncodeLanes * kBytes;
  constexpr std::size_t kRest = kEncodeLanes * (kBytes - 1);
  const Elements<kBytes, kRotated> elements;
  if (from.single) {
    for (std::size_t i = 0; i < steps * kEncodeGroups; ++i) elements.take_apart(in + i * kIn, rest + i * kRest);
    return;
  }
  const Table table = make_table(from);
  // Named one by one, so that they are in registers whatever the compiler thinks of unrolling.
  static_assert(kEncodeGroups == 4);
  Group group0 = load_group(at, 0);
  Group group1 = load_group(at, 1);
  Group group2 = load_group(at, 2);
  Group group3 = load_group(at, 3);
  std::uint8_t* escapes = at.escapes;
  in += steps * kEncodeGroups * kIn;
  rest += steps * kEncodeGroups * kRest;
  const auto put = [&](Group& group) {
    in -= kIn;
    rest -= kRest;
    prefetch_before(in, kIn);
    put_symbols(elements.take_apart(in, rest), group, table, escapes);
  };
  for (; steps > 0; --steps) {
    put(group3);
    put(group2);
    put(group1);
    put(group0);
  }
  store_group(at, 0, group0);
  store_group(at, 1, group1);
  store_group(at, 2, group2);
  store_group(at, 3, group3);
  at.escapes = escapes;
}

}  // namespace

void rans_encode_avx512(RansEncoding& at, const RansEncodeTable& table, std::size_t element_bytes, bool rotated,
                        const std::uint8_t* in, std::size_t steps, std::uint8_t* rest) noexcept {
  if (element_bytes == 2) {
    (rotated ? encode<2, true> : encode<2, false>)(at, table, in, steps, rest);
  } else {
    (rotated ? encode<4, true> : encode<4, false>)(at, table, in, steps, rest);
  }
}

}  // namespace bitsnap::entropy
#endif
