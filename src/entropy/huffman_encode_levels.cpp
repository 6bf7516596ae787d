// The Huffman encoding kernel. With AVX-512 VBMI, 64 codes are looked up in registers and joined four by four, or eight
// by eight if they are short; other levels look up each code in memory.
#include "entropy/huffman_encode_kernel.hpp"

#if defined(__AVX512VBMI__)
#include <immintrin.h>
#endif

namespace bitsnap::entropy {
namespace {

struct BitWriter {
  std::uint64_t bits = 0;  // the lowest `held` bits are not written yet
  std::uint64_t held = 0;  // at most 7 after flush()
  std::uint8_t* out;

  // Up to 57 bits fit after the seven that may be held. Only the lowest six bits of `shift` count, so callers may pass
  // a packed word.
  void put(std::uint64_t code, std::uint64_t shift, std::uint64_t length) noexcept {
    bits = (bits << (shift & 63)) | code;
    held += length;
  }
  // Precondition: at least one bit was put since the last flush.
  void flush() noexcept {
    const std::uint64_t bytes = __builtin_bswap64(bits << ((64 - held) & 63));
    __builtin_memcpy(out, &bytes, 8);
    out += held >> 3;
    held &= 7;
  }
  std::uint8_t* finish() noexcept {
    if (held != 0) *out++ = static_cast<std::uint8_t>(bits << (8 - held));
    return out;
  }
};

struct Word {
  std::uint64_t code;
  std::uint64_t length;
};

inline Word code_of(const HuffmanEncodeTable& table, std::uint8_t symbol) noexcept {
  const std::uint64_t entry = table.entry[symbol];
  return {entry >> 8, entry & 255};
}

inline Word join(Word first, Word second) noexcept {
  return {(first.code << (second.length & 63)) | second.code, first.length + second.length};
}

// Four codes are joined before the writer gets them, which shortens its dependence chain to a quarter.
inline void encode_plain(const HuffmanEncodeTable& table, const std::uint8_t* in, std::size_t size,
                         BitWriter& writer) noexcept {
  std::size_t i = 0;
  for (; i + 4 <= size; i += 4) {
    const Word word = join(join(code_of(table, in[i]), code_of(table, in[i + 1])),
                           join(code_of(table, in[i + 2]), code_of(table, in[i + 3])));
    writer.put(word.code, word.length, word.length);
    writer.flush();
  }
  for (; i < size; ++i) {
    const Word word = code_of(table, in[i]);
    writer.put(word.code, word.length, word.length);
    writer.flush();
  }
}

#if defined(__AVX512VBMI__)
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

// 32 words of 16-bit code | length << 12 to eight words of four codes each: code << 8 | length.
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

// Joins words of four codes to words of eight codes, in the order of the symbols. Returns whether all fit in a word;
// `to` is complete only then.
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

// Writes the codes of whole groups of 64 symbols; returns the number of symbols.
[[gnu::always_inline]] inline std::size_t encode_groups(const HuffmanEncodeTable& table, const std::uint8_t* in,
                                                        std::size_t size, BitWriter& writer) noexcept {
  const Bytes256 low = load_table(table.low);
  const Bytes256 high = load_table(table.high);
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
  return i;
}
#else
inline std::size_t encode_groups(const HuffmanEncodeTable&, const std::uint8_t*, std::size_t, BitWriter&) noexcept {
  return 0;
}
#endif

std::size_t encode(const HuffmanEncodeTable& table, const std::uint8_t* in, std::size_t size,
                   std::uint8_t* out) noexcept {
  BitWriter writer{.out = out};
  const std::size_t done = encode_groups(table, in, size, writer);
  encode_plain(table, in + done, size - done, writer);
  return static_cast<std::size_t>(writer.finish() - out);
}

}  // namespace

constinit const HuffmanEncodeKernels HuffmanEncodeKernels::BITSNAP_KERNEL_LEVEL = {entropy::encode};

}  // namespace bitsnap::entropy
