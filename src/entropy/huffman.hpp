// Shared by both sides of Huffman blocks: docs/spec/entropy.md, "Huffman blocks".
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"

namespace bitsnap::entropy {

// On disk: never change.
inline constexpr unsigned kMaxCodeBits = 11;
inline constexpr std::size_t kMaxStreams = 8;
inline constexpr std::size_t kMinStreamedBytes =
    1024;  // shorter blocks have one stream: eight sizes would cost too much

// The longest table of code lengths: one range of all symbols, one nibble each.
inline constexpr std::size_t kMaxCodeLengthBytes = 3 + 128;

// The code length in bits of each symbol; 0 if the symbol does not occur.
using CodeLengths = std::array<std::uint8_t, 256>;

[[nodiscard]] constexpr std::size_t stream_count(std::size_t block_bytes) noexcept {
  return block_bytes >= kMinStreamedBytes ? kMaxStreams : 1;
}

// Symbols of each stream except the last, which has the rest of the block.
[[nodiscard]] constexpr std::size_t stream_symbols(std::size_t block_bytes) noexcept {
  const std::size_t streams = stream_count(block_bytes);
  return (block_bytes + streams - 1) / streams;
}

// The symbols that occur, by (length, value): the order of canonical codes.
struct CodeOrder {
  std::array<std::uint8_t, 256> symbols;
  std::array<std::uint16_t, kMaxCodeBits + 2> first;  // symbols[first[n] .. first[n + 1]) have codes of n bits
};

// Precondition: lengths do not exceed kMaxCodeBits.
[[nodiscard]] inline CodeOrder order_codes(const CodeLengths& lengths) noexcept {
  std::array<std::uint16_t, kMaxCodeBits + 1> count{};
  for (const std::uint8_t length : lengths) ++count[length];
  CodeOrder order;
  std::array<std::uint16_t, kMaxCodeBits + 1> next{};
  order.first[0] = order.first[1] = 0;
  for (std::size_t length = 1; length <= kMaxCodeBits; ++length) {
    next[length] = order.first[length];
    order.first[length + 1] = static_cast<std::uint16_t>(order.first[length] + count[length]);
  }
  for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
    if (lengths[symbol] != 0) order.symbols[next[lengths[symbol]]++] = static_cast<std::uint8_t>(symbol);
  }
  return order;
}

// Reads a table of code lengths from the front of `bytes` and returns the bytes used. Accepts only complete prefix
// codes of at least two symbols and at most kMaxCodeBits bits.
[[nodiscard]] Result<std::size_t> read_code_lengths(ConstByteSpan bytes, CodeLengths& lengths);

}  // namespace bitsnap::entropy
