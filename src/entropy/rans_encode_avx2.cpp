// The AVX2 encoding kernel of the lane coder: 32 lanes at a time, tables of 16 symbols in registers.
#include "entropy/rans_encode_kernel.hpp"

#include "entropy/rans_lanes_avx2.hpp"

namespace bitsnap::entropy {
namespace {

struct Table {
  __m256i first;
  __m256i window;
  __m256i outlier;
  __m256i starts;
  __m256i frequencies;
  __m256i reciprocals_low;
  __m256i reciprocals_high;
};

inline Table make_table(const RansEncodeTable& from) noexcept {
  Table table;
  table.first = _mm256_set1_epi8(static_cast<char>(from.first));
  table.window = _mm256_set1_epi8(static_cast<char>(from.window));
  table.outlier = _mm256_set1_epi8(static_cast<char>(from.outlier));
  table.starts = broadcast(from.starts);
  table.frequencies = broadcast(from.frequencies);
  table.reciprocals_low = broadcast(from.reciprocals_low);
  table.reciprocals_high = broadcast(from.reciprocals_high);
  return table;
}

// Codes one symbol in each of 32 lanes. Always inlined: a call would put every table into memory.
[[gnu::always_inline]] inline void put_symbols(__m256i symbols, __m256i& low, __m256i& high, const Table& table,
                                               std::uint8_t*& out, std::uint8_t*& escapes) noexcept {
  const __m256i in_window = _mm256_min_epu8(_mm256_sub_epi8(symbols, table.first), table.window);
  const __m256i is_outlier = _mm256_cmpeq_epi8(symbols, table.outlier);
  const __m256i index = _mm256_blendv_epi8(in_window, _mm256_set1_epi8(kOutlierIndex), is_outlier);
  const __m256i escaped = _mm256_cmpeq_epi8(index, table.window);
  if (_mm256_testz_si256(escaped, escaped) == 0) [[unlikely]]
    escapes = write_below(escapes, escaped, symbols);

  put_codes({_mm256_shuffle_epi8(table.frequencies, index), _mm256_shuffle_epi8(table.starts, index),
             _mm256_shuffle_epi8(table.reciprocals_low, index), _mm256_shuffle_epi8(table.reciprocals_high, index)},
            low, high, out);
}

// Writes the lower bytes of 32 elements, and nothing after them; returns the symbols.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline __m256i take_apart(const std::uint8_t* in, [[maybe_unused]] std::uint8_t* rest) noexcept {
  if constexpr (kBytes == 1) {
    return load(in);
  } else if constexpr (kBytes == 2) {
    const auto turned = [](__m256i elements) {
      if constexpr (!kRotated) return elements;
      return _mm256_or_si256(_mm256_slli_epi16(elements, 1), _mm256_srli_epi16(elements, 15));
    };
    const __m256i a = turned(load(in));
    const __m256i b = turned(load(in + 32));
    const __m256i low_bytes = _mm256_set1_epi16(0xff);
    // Packing works within 16 bytes, so the middle quarters are exchanged afterwards.
    const __m256i rests = _mm256_packus_epi16(_mm256_and_si256(a, low_bytes), _mm256_and_si256(b, low_bytes));
    const __m256i symbols = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    store(rest, _mm256_permute4x64_epi64(rests, 0xd8));
    return _mm256_permute4x64_epi64(symbols, 0xd8);
  } else {
    // In each 16 bytes, the lower bytes of four elements, then their symbols.
    const __m256i apart =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15));
    __m256i parts[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      __m256i elements = load(in + 32 * q);
      if constexpr (kRotated)
        elements = _mm256_or_si256(_mm256_slli_epi32(elements, 1), _mm256_srli_epi32(elements, 31));
      parts[q] = _mm256_shuffle_epi8(elements, apart);
      auto* const front = reinterpret_cast<__m128i*>(rest + 24 * q);
      auto* const rear = reinterpret_cast<__m128i*>(rest + 24 * q + 12);
      _mm_storeu_si128(front, _mm256_castsi256_si128(parts[q]));
      const __m128i second = _mm256_extracti128_si256(parts[q], 1);
      if (q < 3) {
        _mm_storeu_si128(rear, second);  // the overhang is overwritten later
      } else {
        _mm_storel_epi64(rear, second);
        const int last = _mm_extract_epi32(second, 2);
        __builtin_memcpy(rest + 24 * q + 20, &last, 4);
      }
    }
    const __m256i symbols =
        _mm256_unpackhi_epi64(_mm256_unpackhi_epi32(parts[0], parts[1]), _mm256_unpackhi_epi32(parts[2], parts[3]));
    return _mm256_permutevar8x32_epi32(symbols, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
}

template <std::size_t kBytes, bool kRotated>
void encode(RansEncoding& at, const RansEncodeTable& from, const std::uint8_t* in, std::size_t rounds,
            std::uint8_t* rest) noexcept {
  constexpr std::size_t kIn = kHalf * kBytes;
  constexpr std::size_t kRest = kHalf * (kBytes - 1);
  if (from.single) {
    for (std::size_t i = 0; i < rounds * kEncodeGroups * 2; ++i) {
      take_apart<kBytes, kRotated>(in + i * kIn, rest + i * kRest);
    }
    return;
  }
  const Table table = make_table(from);
  std::uint8_t* escapes = at.escapes;
  for (std::size_t round = rounds; round-- > 0;) {
    for (std::size_t group = kEncodeGroups; group-- > 0;) {
      std::uint8_t* out = at.out[group];
#pragma GCC unroll 2
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t half = 1 - i;
        const std::size_t number = (round * kEncodeGroups + group) * 2 + half;
        prefetch_before(in + number * kIn, kIn);
        const __m256i symbols = take_apart<kBytes, kRotated>(in + number * kIn, rest + number * kRest);
        auto* const low_at = reinterpret_cast<__m256i*>(at.low[group] + half * kHalf);
        auto* const high_at = reinterpret_cast<__m256i*>(at.high[group] + half * kHalf);
        __m256i low = _mm256_load_si256(low_at);
        __m256i high = _mm256_load_si256(high_at);
        put_symbols(symbols, low, high, table, out, escapes);
        _mm256_store_si256(low_at, low);
        _mm256_store_si256(high_at, high);
      }
      at.out[group] = out;
    }
  }
  at.escapes = escapes;
}

}  // namespace

constinit const RansEncodeKernels RansEncodeKernels::kAvx2 = {{{entropy::encode<1, false>, entropy::encode<1, false>},
                                                               {entropy::encode<2, false>, entropy::encode<2, true>},
                                                               {entropy::encode<4, false>, entropy::encode<4, true>}}};

}  // namespace bitsnap::entropy
