// Encoding of byte planes: docs/spec/entropy.md. Choosing the form of a block, and writing it.
#include "entropy/byte_block_encode.hpp"

#include <string>

#include "base/cpu_dispatch.hpp"
#include "entropy/code_lengths_encode.hpp"
#include "entropy/histogram.hpp"
#include "entropy/huffman.hpp"
#include "entropy/huffman_encode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

constexpr KernelTable<std::size_t(const HuffmanEncodeTable&, const std::uint8_t*, std::size_t, std::uint8_t*) noexcept>
    kHuffmanEncode{huffman_encode_scalar, BITSNAP_X86(huffman_encode_avx2, huffman_encode_avx512)};

// What a block must save to be worth decoding. The constant part also gives the kernel its overhang: a Huffman block
// and kEncodeOverhang bytes behind it never need more room than the raw form.
constexpr std::size_t kMinSavedBytes = kEncodeOverhang;
constexpr std::size_t kMinSavedShare = 128;

struct BlockPlan {
  BlockMode mode = BlockMode::raw;
  std::size_t size_bytes = 0;  // with the mode byte; of a Huffman block at most 7 bytes too many
  CodeLengths lengths;         // of a Huffman block
};

void plan_block(ConstByteSpan block, BlockPlan& plan) noexcept {
  plan.mode = BlockMode::raw;
  plan.size_bytes = 1 + block.size();
  if (std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0) {
    plan.mode = BlockMode::fill;
    plan.size_bytes = 2;
    return;
  }
  if (looks_incompressible(block.data(), block.size())) return;
  Histogram counts;
  count_bytes(block.data(), block.size(), counts);
  choose_code_lengths(counts, plan.lengths);
  std::size_t bits = 0;
  for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
    bits += std::size_t{counts[symbol]} * plan.lengths[symbol];
  }
  std::array<std::byte, kMaxCodeLengthBytes> table;
  const std::size_t streams = stream_count(block.size());
  // Each stream is padded to a byte on its own.
  const std::size_t size = 1 + 2 * streams + write_code_lengths(plan.lengths, table.data()) + (bits + 7 * streams) / 8;
  if (size + std::max(kMinSavedBytes, block.size() / kMinSavedShare) > plan.size_bytes) return;
  plan.mode = BlockMode::huffman;
  plan.size_bytes = size;
}

void fill_encode_table(const CodeLengths& lengths, HuffmanEncodeTable& table) noexcept {
  const CodeOrder order = order_codes(lengths);
  std::memset(&table, 0, sizeof(table));
  unsigned code = 0;
  for (unsigned length = 1; length <= kMaxCodeBits; ++length) {
    code <<= 1;
    for (std::size_t i = order.first[length]; i < order.first[length + 1]; ++i, ++code) {
      const std::uint8_t symbol = order.symbols[i];
      table.low[symbol] = static_cast<std::uint8_t>(code);
      table.high[symbol] = static_cast<std::uint8_t>((code >> 8) | (length << 4));
      table.entry[symbol] = (code << 8) | length;
    }
  }
}

// Writes a Huffman block behind its mode byte and returns the bytes it took. `out` has room for the planned size and
// kEncodeOverhang.
std::size_t write_huffman(ConstByteSpan block, const CodeLengths& lengths, std::byte* out) noexcept {
  HuffmanEncodeTable table;
  fill_encode_table(lengths, table);
  const std::size_t count = stream_count(block.size());
  const std::size_t each = stream_symbols(block.size());
  std::size_t offset = 2 * count;
  offset += write_code_lengths(lengths, out + offset);
  for (std::size_t s = 0; s < count; ++s) {
    const ConstByteSpan part = block.subspan(s * each, s + 1 == count ? block.size() - s * each : each);
    const std::size_t size = kHuffmanEncode.pick()(table, reinterpret_cast<const std::uint8_t*>(part.data()),
                                                   part.size(), reinterpret_cast<std::uint8_t*>(out + offset));
    store_le(out + 2 * s, static_cast<std::uint16_t>(size));
    offset += size;
  }
  return offset;
}

}  // namespace

Result<std::size_t> encode_plane(ConstByteSpan plane, ByteSpan out, Scratch& /*scratch*/) {
  if (out.size() < max_encoded_plane_size(plane.size())) {
    return fail(ErrorKind::invalid_argument, "encoding a plane of " + std::to_string(plane.size()) + " bytes needs " +
                                                 std::to_string(max_encoded_plane_size(plane.size())) +
                                                 " bytes of room, found " + std::to_string(out.size()));
  }
  BlockPlan plan;
  std::byte* to = out.data();
  for (std::size_t begin = 0; begin < plane.size(); begin += kBlockBytes) {
    const ConstByteSpan block = plane.subspan(begin, std::min(kBlockBytes, plane.size() - begin));
    plan_block(block, plan);
    *to++ = static_cast<std::byte>(plan.mode);
    switch (plan.mode) {
      case BlockMode::raw:
        std::memcpy(to, block.data(), block.size());
        to += block.size();
        break;
      case BlockMode::fill: *to++ = block[0]; break;
      case BlockMode::huffman: to += write_huffman(block, plan.lengths, to); break;
    }
  }
  return static_cast<std::size_t>(to - out.data());
}

Result<std::size_t> encoded_plane_size(ConstByteSpan plane, Scratch& /*scratch*/) {
  BlockPlan plan;
  std::size_t size = 0;
  for (std::size_t begin = 0; begin < plane.size(); begin += kBlockBytes) {
    plan_block(plane.subspan(begin, std::min(kBlockBytes, plane.size() - begin)), plan);
    size += plan.size_bytes;
  }
  return size;
}

}  // namespace bitsnap::entropy
