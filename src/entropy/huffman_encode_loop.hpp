// The bit writer and the plain loop of the Huffman encoding kernel, for the files that compile them for one instruction
// set each. Everything here has internal linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "entropy/huffman_encode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

struct BitWriter {
  std::uint64_t bits = 0;  // the lowest `held` are still to be written
  std::uint64_t held = 0;  // at most 7 after flush()
  std::uint8_t* out;

  // Up to 57 bits at a time fit behind the seven that may be held. Only the lowest six bits of `shift` count, so that a
  // packed word can be given as it is.
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

// Four codes are joined before they meet the writer, so that its chain of dependences is a quarter as long.
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

}  // namespace
}  // namespace bitsnap::entropy
