// The Huffman encoding kernel: symbols to one bit stream. Preconditions: every symbol of `in` has a code, and `out` has
// room for all bits plus kEncodeOverhang bytes, which may be overwritten.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::entropy {

// A code in the forms that the kernels look up.
struct HuffmanEncodeTable {
  alignas(64) std::uint8_t low[256];   // code & 255
  alignas(64) std::uint8_t high[256];  // code >> 8 | length << 4
  std::uint32_t entry[256];            // code << 8 | length
};

inline constexpr std::size_t kEncodeOverhang = 8;

// Writes the codes of `size` symbols, the first bit on top of the first byte, padded with zeros to a byte; returns the
// bytes.
struct HuffmanEncodeKernels {
  std::size_t (*encode)(const HuffmanEncodeTable& table, const std::uint8_t* in, std::size_t size,
                        std::uint8_t* out) noexcept;

  static const HuffmanEncodeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::entropy
