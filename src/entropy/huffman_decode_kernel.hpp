// The Huffman decoding kernel, compiled once for the baseline and once with AVX2's bit instructions.
//
// Preconditions: `order` is a complete prefix code; every stream lies inside the payload that ends at `readable_end`,
// and inside the block. The bits are not trusted: no read passes `readable_end`, and no write leaves the stream's own
// output.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

struct HuffmanStream {
  const std::uint8_t* in;
  const std::uint8_t* in_end;
  std::uint8_t* out;
  std::uint8_t* out_end;
};

// A code in canonical order.
struct HuffmanCode {
  const std::uint8_t* symbols;  // by (length, value)
  const std::uint16_t* first;   // symbols[first[n] .. first[n + 1]) have codes of n bits, n up to 11
  const std::uint8_t* lengths;  // by value
};

// The table for prefixes of k bits, k = 0 .. 11, is at [2^k, 2^(k+1)). An entry states what the k bits begin with: the
// bits used (bits 0-7), up to six symbols (bits 8-55, the first lowest), and their number (bits 56-63).
inline constexpr std::size_t kHuffmanTableEntries = 4096;

// Decodes `count` streams. Returns the index of the first stream whose bits do not end exactly at the end of its input
// (except for zero padding to a byte), or `count` if all do. `table` is working memory of kHuffmanTableEntries.
struct HuffmanDecodeKernels {
  std::size_t (*decode)(const HuffmanCode& code, HuffmanStream* streams, std::size_t count,
                        const std::uint8_t* readable_end, std::uint64_t* table) noexcept;

  static const HuffmanDecodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
