// Shared by the AVX2 kernels of the lane coders: 32 states as two registers of bytes, and coding one symbol in each.
// Everything has internal linkage.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "entropy/rans_expand_table.hpp"

namespace bitsnap::entropy {
namespace {

constexpr std::size_t kHalf = 32;  // lanes of a vector

inline __m256i broadcast(const std::uint8_t* sixteen) noexcept {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(sixteen)));
}

inline __m256i load(const std::uint8_t* from) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
inline void store(std::uint8_t* to, __m256i bytes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
}

inline unsigned count_lanes(unsigned lanes) noexcept { return static_cast<unsigned>(_mm_popcnt_u32(lanes)); }

// The next bytes in the lanes that `mask` marks, zero in the others. Reads at most 32 bytes from `in`.
inline __m256i expand(const std::uint8_t*& in, unsigned mask) noexcept {
  const auto load_two = [](const std::uint8_t* lower, const std::uint8_t* upper) {
    return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(upper), reinterpret_cast<const __m128i*>(lower));
  };
  const __m256i lower = load_two(kExpand.lower[mask & 255], kExpand.lower[mask >> 16 & 255]);
  const __m256i upper = load_two(kExpand.upper[mask >> 8 & 255], kExpand.upper[mask >> 24]);
  const __m256i bytes = load_two(in, in + count_lanes(mask & 0xffff));
  in += count_lanes(mask);
  return _mm256_shuffle_epi8(bytes, _mm256_add_epi8(lower, upper));
}

// Decodes: removes the slots of a symbol from 32 states that lie `excess` above the symbol's start. Always inlined,
// like every function with vectors as reference parameters: a call would put the tables into memory.
[[gnu::always_inline]] inline void take_slots(__m256i frequencies, __m256i excess, __m256i& low, __m256i& high,
                                              const std::uint8_t*& in) noexcept {
  // frequency * high + excess in 16 bits, for even and odd lanes separately.
  const __m256i low_bytes = _mm256_set1_epi16(0xff);
  const __m256i even =
      _mm256_add_epi16(_mm256_mullo_epi16(_mm256_and_si256(frequencies, low_bytes), _mm256_and_si256(high, low_bytes)),
                       _mm256_and_si256(excess, low_bytes));
  const __m256i odd = _mm256_add_epi16(
      _mm256_mullo_epi16(_mm256_srli_epi16(frequencies, 8), _mm256_srli_epi16(high, 8)), _mm256_srli_epi16(excess, 8));
  const __m256i next_low = _mm256_or_si256(_mm256_and_si256(even, low_bytes), _mm256_slli_epi16(odd, 8));
  const __m256i next_high = _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_andnot_si256(low_bytes, odd));

  // States below 256 take the next byte of the stream.
  const __m256i grows = _mm256_cmpeq_epi8(next_high, _mm256_setzero_si256());
  high = _mm256_or_si256(next_high, _mm256_and_si256(grows, next_low));
  low = _mm256_or_si256(_mm256_andnot_si256(grows, next_low),
                        expand(in, static_cast<unsigned>(_mm256_movemask_epi8(grows))));
}

// For each mask of eight lanes, the order that moves the marked lanes to the end of eight bytes.
struct CompressTable {
  alignas(64) std::uint8_t orders[256][8];
};

constexpr CompressTable make_compress_table(unsigned first) noexcept {
  CompressTable table{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    unsigned place = 8;
    for (unsigned lane = 8; lane-- > 0;) {
      if ((mask >> lane & 1) != 0) table.orders[mask][--place] = static_cast<std::uint8_t>(first + lane);
    }
  }
  return table;
}

constexpr CompressTable kCompressLower = make_compress_table(0);
constexpr CompressTable kCompressUpper = make_compress_table(8);

// Writes the bytes that `mask` marks, in order, so that they end at `end`; up to eight bytes below them are
// overwritten.
inline std::uint8_t* write_below(std::uint8_t* end, unsigned mask, __m128i bytes) noexcept {
  const unsigned low = mask & 255;
  const unsigned high = mask >> 8 & 255;
  const __m128i order =
      _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompressLower.orders[low])),
                         _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kCompressUpper.orders[high])));
  const __m128i packed = _mm_shuffle_epi8(bytes, order);
  _mm_storeh_pd(reinterpret_cast<double*>(end - 8), _mm_castsi128_pd(packed));
  end -= count_lanes(high);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(end - 8), packed);
  return end - count_lanes(low);
}

inline std::uint8_t* write_below(std::uint8_t* end, __m256i chosen, __m256i bytes) noexcept {
  const auto mask = static_cast<unsigned>(_mm256_movemask_epi8(chosen));
  end = write_below(end, mask >> 16, _mm256_extracti128_si256(bytes, 1));
  return write_below(end, mask & 0xffff, _mm256_castsi256_si128(bytes));
}

struct Divided {
  __m256i quotient;
  __m256i remainder;
};

// Divides 16-bit states by frequencies; see rans_reciprocal().
inline Divided divide(__m256i states, __m256i frequencies, __m256i reciprocals) noexcept {
  const __m256i near = _mm256_mulhi_epu16(states, reciprocals);
  const __m256i over = _mm256_sub_epi16(states, _mm256_mullo_epi16(near, frequencies));
  const __m256i fits = _mm256_cmpgt_epi16(frequencies, over);
  return {_mm256_add_epi16(_mm256_add_epi16(near, _mm256_set1_epi16(1)), fits),
          _mm256_sub_epi16(over, _mm256_andnot_si256(fits, frequencies))};
}

// The table entries of 32 symbols.
struct Codes {
  __m256i frequencies;
  __m256i starts;
  __m256i reciprocals_low;
  __m256i reciprocals_high;
};

// Codes one symbol in each of 32 lanes.
[[gnu::always_inline]] inline void put_codes(const Codes& code, __m256i& low, __m256i& high,
                                             std::uint8_t*& out) noexcept {
  // States that the symbol would carry beyond 16 bits give up their lower byte.
  const __m256i shrinks = _mm256_cmpeq_epi8(_mm256_max_epu8(high, code.frequencies), high);
  out = write_below(out, shrinks, low);
  low = _mm256_blendv_epi8(low, high, shrinks);
  high = _mm256_andnot_si256(shrinks, high);

  const __m256i zero = _mm256_setzero_si256();
  const Divided lower = divide(_mm256_unpacklo_epi8(low, high), _mm256_unpacklo_epi8(code.frequencies, zero),
                               _mm256_unpacklo_epi8(code.reciprocals_low, code.reciprocals_high));
  const Divided upper = divide(_mm256_unpackhi_epi8(low, high), _mm256_unpackhi_epi8(code.frequencies, zero),
                               _mm256_unpackhi_epi8(code.reciprocals_low, code.reciprocals_high));
  high = _mm256_packus_epi16(lower.quotient, upper.quotient);
  low = _mm256_add_epi8(_mm256_packus_epi16(lower.remainder, upper.remainder), code.starts);
}

}  // namespace
}  // namespace bitsnap::entropy
