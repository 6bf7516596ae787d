// The Huffman encoding kernel for AVX-512 VBMI: 64 codes are looked up in registers and joined four by four, and eight
// by eight where they are short; called only where the machine has it.
#include "entropy/huffman_encode_kernel.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

#include "entropy/huffman_encode_loop.hpp"

namespace bitsnap::entropy {
namespace {

struct Bytes256 {
  __m512i part[4];
};

inline Bytes256 load_table(const std::uint8_t* from) noexcept {
  Bytes256 table;
  for (int i = 0; i < 4; ++i) table.part[i] = _mm512_load_si512(from + 64 * i);
  return table;
}

inline __m512i look_up(const Bytes256& table, __m512i symbols, __mmask64 upper_half) noexcept {
  const __m512i below = _mm512_permutex2var_epi8(table.part[0], symbols, table.part[1]);
  const __m512i above = _mm512_permutex2var_epi8(table.part[2], symbols, table.part[3]);
  return _mm512_mask_blend_epi8(upper_half, below, above);
}

// 16-bit code | length << 12, 32 of them, to eight words of four codes each: code << 8 | length.
inline __m512i join_four(__m512i codes) noexcept {
  const __m512i code_bits = _mm512_set1_epi32(0x7ff);
  const __m512i first = _mm512_and_si512(codes, code_bits);
  const __m512i second = _mm512_and_si512(_mm512_srli_epi32(codes, 16), code_bits);
  const __m512i second_length = _mm512_srli_epi32(codes, 28);
  const __m512i first_length = _mm512_and_si512(_mm512_srli_epi32(codes, 12), _mm512_set1_epi32(15));
  const __m512i pair = _mm512_or_si512(_mm512_sllv_epi32(first, second_length), second);
  const __m512i pair_length = _mm512_add_epi32(first_length, second_length);

  const __m512i low_half = _mm512_set1_epi64(0xffffffff);
  const __m512i rear_length = _mm512_srli_epi64(pair_length, 32);
  const __m512i length = _mm512_add_epi64(_mm512_and_si512(pair_length, low_half), rear_length);
  const __m512i code =
      _mm512_or_si512(_mm512_sllv_epi64(_mm512_and_si512(pair, low_half), rear_length), _mm512_srli_epi64(pair, 32));
  return _mm512_or_si512(_mm512_slli_epi64(code, 8), length);
}

// Words of eight codes, in the order of the symbols, from words of four: those of each lower and each upper eight
// of 16. Returns whether all fit a word; `to` is complete only then.
inline bool join_eight(__m512i lower, __m512i upper, std::uint64_t* to) noexcept {
  const __m512i length_bits = _mm512_set1_epi64(255);
  const __m512i first = _mm512_unpacklo_epi64(lower, upper);
  const __m512i second = _mm512_unpackhi_epi64(lower, upper);
  const __m512i second_length = _mm512_and_si512(second, length_bits);
  const __m512i length = _mm512_add_epi64(_mm512_and_si512(first, length_bits), second_length);
  const __m512i code =
      _mm512_or_si512(_mm512_sllv_epi64(_mm512_srli_epi64(first, 8), second_length), _mm512_srli_epi64(second, 8));
  _mm512_store_si512(to, _mm512_or_si512(_mm512_slli_epi64(code, 8), length));
  return _mm512_cmpgt_epi64_mask(length, _mm512_set1_epi64(56)) == 0;
}

inline void write_word(BitWriter& writer, std::uint64_t word) noexcept {
  writer.put(word >> 8, word, word & 255);
  writer.flush();
}

}  // namespace

std::size_t huffman_encode_avx512(const HuffmanEncodeTable& table, const std::uint8_t* in, std::size_t size,
                                  std::uint8_t* out) noexcept {
  const Bytes256 low = load_table(table.low);
  const Bytes256 high = load_table(table.high);
  BitWriter writer{.out = out};
  alignas(64) std::uint64_t words[16];
  std::size_t i = 0;
  for (; i + 64 <= size; i += 64) {
    const __m512i symbols = _mm512_loadu_si512(in + i);
    const __mmask64 upper_half = _mm512_movepi8_mask(symbols);
    const __m512i low_bytes = look_up(low, symbols, upper_half);
    const __m512i high_bytes = look_up(high, symbols, upper_half);
    // Interleaving works within 16 symbols: `lower` gets symbols 0-7 of each, `upper` 8-15.
    const __m512i lower = join_four(_mm512_unpacklo_epi8(low_bytes, high_bytes));
    const __m512i upper = join_four(_mm512_unpackhi_epi8(low_bytes, high_bytes));
    if (join_eight(lower, upper, words)) [[likely]] {
#pragma GCC unroll 8
      for (std::size_t word = 0; word < 8; ++word) write_word(writer, words[word]);
      continue;
    }
    _mm512_store_si512(words, lower);
    _mm512_store_si512(words + 8, upper);
    for (std::size_t word = 0; word < 8; word += 2) {
      write_word(writer, words[word]);
      write_word(writer, words[word + 1]);
      write_word(writer, words[word + 8]);
      write_word(writer, words[word + 9]);
    }
  }
  encode_plain(table, in + i, size - i, writer);
  return static_cast<std::size_t>(writer.finish() - out);
}

}  // namespace bitsnap::entropy
#endif
