// The AVX2 decoding kernel of the lane coder: 32 lanes at a time, tables of 16 symbols in registers.
#include "entropy/rans_decode_kernel.hpp"

#include "entropy/rans_lanes_avx2.hpp"

namespace bitsnap::entropy {
namespace {

struct Table {
  __m256i quarters[3];  // the thresholds of the symbol indexes 4, 8 and 12
  __m256i within[3];    // for each quarter, the thresholds of its other three indexes
  __m256i symbols;
  __m256i starts;
  __m256i frequencies;
  __m256i coded;  // the last slot before the escape's slots, flipped
};

// A slot belongs to an index or a later one if it is above the index's start minus 1. Compares are signed, so both
// sides have their top bit flipped.
inline Table make_table(const RansDecodeTable& from) noexcept {
  const auto threshold = [&](unsigned index) { return static_cast<std::uint8_t>((from.starts[index] - 1) ^ 0x80); };
  Table table;
  for (unsigned i = 0; i < 3; ++i) {
    alignas(16) std::uint8_t within[16] = {};
    for (unsigned quarter = 0; quarter < 4; ++quarter) within[quarter] = threshold(4 * quarter + i + 1);
    table.quarters[i] = _mm256_set1_epi8(static_cast<char>(threshold(4 * i + 4)));
    table.within[i] = broadcast(within);
  }
  table.symbols = broadcast(from.symbols);
  table.starts = broadcast(from.starts);
  table.frequencies = broadcast(from.frequencies);
  const unsigned escapes_from = from.escape_index < 16 ? from.starts[from.escape_index] : 256;
  table.coded = _mm256_set1_epi8(static_cast<char>((escapes_from - 1) ^ 0x80));
  return table;
}

// The symbol index of each slot: first the quarter, then the place within it. The compares of each stage are
// independent.
inline __m256i indexes_of(const Table& table, __m256i flipped) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i lower = _mm256_cmpgt_epi8(flipped, table.quarters[0]);
  const __m256i middle = _mm256_cmpgt_epi8(flipped, table.quarters[1]);
  const __m256i upper = _mm256_cmpgt_epi8(flipped, table.quarters[2]);
  const __m256i quarters = _mm256_sub_epi8(_mm256_sub_epi8(zero, lower), _mm256_add_epi8(middle, upper));
  const __m256i first = _mm256_cmpgt_epi8(flipped, _mm256_shuffle_epi8(table.within[0], quarters));
  const __m256i second = _mm256_cmpgt_epi8(flipped, _mm256_shuffle_epi8(table.within[1], quarters));
  const __m256i third = _mm256_cmpgt_epi8(flipped, _mm256_shuffle_epi8(table.within[2], quarters));
  const __m256i indexes = _mm256_slli_epi16(quarters, 2);
  return _mm256_sub_epi8(_mm256_sub_epi8(indexes, first), _mm256_add_epi8(second, third));
}

// The next symbols of 32 lanes; escaped symbols are missing.
struct Decoded {
  __m256i symbols;
  unsigned escaped;  // a bit for each lane
};

// Always inlined: a call would put every table into memory.
[[gnu::always_inline]] inline Decoded next_symbols(std::uint8_t* low_at, std::uint8_t* high_at, const Table& table,
                                                   const std::uint8_t*& in) noexcept {
  __m256i low = load(low_at);
  __m256i high = load(high_at);
  const __m256i flipped = _mm256_xor_si256(low, _mm256_set1_epi8(static_cast<char>(0x80)));
  const __m256i indexes = indexes_of(table, flipped);
  take_slots(_mm256_shuffle_epi8(table.frequencies, indexes),
             _mm256_sub_epi8(low, _mm256_shuffle_epi8(table.starts, indexes)), low, high, in);
  store(low_at, low);
  store(high_at, high);
  return {_mm256_shuffle_epi8(table.symbols, indexes),
          static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpgt_epi8(flipped, table.coded)))};
}

// Inserts the escaped symbols; rare enough for a branch and a loop.
inline __m256i put_escapes(__m256i symbols, unsigned escaped, const std::uint8_t*& escapes) noexcept {
  alignas(32) std::uint8_t bytes[kHalf];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bytes), symbols);
  for (; escaped != 0; escaped = _blsr_u32(escaped)) bytes[_tzcnt_u32(escaped)] = *escapes++;
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes));
}

// Joins 32 symbols and the lower bytes to elements.
template <std::size_t kBytes, bool kRotated>
[[gnu::always_inline]] inline void store_elements(__m256i symbols, [[maybe_unused]] const std::uint8_t* rest,
                                                  std::uint8_t* out) noexcept {
  if constexpr (kBytes == 1) {
    store(out, symbols);
  } else if constexpr (kBytes == 2) {
    const auto turned = [](__m256i elements) {
      if constexpr (!kRotated) return elements;
      return _mm256_or_si256(_mm256_srli_epi16(elements, 1), _mm256_slli_epi16(elements, 15));
    };
    // Interleaving works within 16 bytes, so the middle quarters are exchanged first.
    const __m256i rests = _mm256_permute4x64_epi64(load(rest), 0xd8);
    const __m256i tops = _mm256_permute4x64_epi64(symbols, 0xd8);
    store(out, turned(_mm256_unpacklo_epi8(rests, tops)));
    store(out + 32, turned(_mm256_unpackhi_epi8(rests, tops)));
  } else {
    const __m256i spread =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    alignas(32) std::uint8_t tops[kHalf];
    _mm256_store_si256(reinterpret_cast<__m256i*>(tops), symbols);
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      const auto* const from = reinterpret_cast<const __m128i*>(rest + 24 * q);
      const auto* const behind = reinterpret_cast<const __m128i*>(rest + 24 * q + 12);
      const __m256i rests = _mm256_set_m128i(_mm_loadu_si128(behind), _mm_loadu_si128(from));
      const __m256i top = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(tops + 8 * q)));
      __m256i elements = _mm256_or_si256(_mm256_shuffle_epi8(rests, spread), _mm256_slli_epi32(top, 24));
      if constexpr (kRotated)
        elements = _mm256_or_si256(_mm256_srli_epi32(elements, 1), _mm256_slli_epi32(elements, 31));
      store(out + 32 * q, elements);
    }
  }
}

template <std::size_t kBytes, bool kRotated>
void decode(RansDecoding& at, const RansDecodeTable& from, const std::uint8_t* rest, std::size_t rounds,
            std::uint8_t* out) noexcept {
  constexpr std::size_t kRest = kHalf * (kBytes - 1);
  constexpr std::size_t kOut = kHalf * kBytes;
  if (from.single) {
    const __m256i symbols = _mm256_set1_epi8(static_cast<char>(from.symbols[0]));
    for (std::size_t i = 0; i < rounds * kDecodeGroups * 2; ++i) {
      store_elements<kBytes, kRotated>(symbols, rest + i * kRest, out + i * kOut);
    }
    return;
  }
  const Table table = make_table(from);
  const std::uint8_t* escapes = at.escapes;
  const std::uint8_t* const limit = at.limit;
  for (; rounds > 0; --rounds) {
    for (std::size_t group = 0; group < kDecodeGroups; ++group) {
      const std::uint8_t* in = at.in[group] < limit ? at.in[group] : limit;
      Decoded first = next_symbols(at.low[group], at.high[group], table, in);
      Decoded second = next_symbols(at.low[group] + kHalf, at.high[group] + kHalf, table, in);
      at.in[group] = in;
      if ((first.escaped | second.escaped) != 0) [[unlikely]] {
        escapes = escapes < limit ? escapes : limit;
        first.symbols = put_escapes(first.symbols, first.escaped, escapes);
        second.symbols = put_escapes(second.symbols, second.escaped, escapes);
      }
      store_elements<kBytes, kRotated>(first.symbols, rest, out);
      store_elements<kBytes, kRotated>(second.symbols, rest + kRest, out + kOut);
      rest += 2 * kRest;
      out += 2 * kOut;
    }
  }
  at.escapes = escapes;
}

}  // namespace

constinit const RansDecodeKernels RansDecodeKernels::kAvx2 = {{{entropy::decode<1, false>, entropy::decode<1, false>},
                                                               {entropy::decode<2, false>, entropy::decode<2, true>},
                                                               {entropy::decode<4, false>, entropy::decode<4, true>}}};

}  // namespace bitsnap::entropy
