// Decoding of byte planes: docs/spec/entropy.md. All sizes are checked before a kernel runs.
#include <string>

#include "base/cpu_dispatch.hpp"
#include "entropy/byte_block.hpp"
#include "entropy/change_mask.hpp"
#include "entropy/huffman.hpp"
#include "entropy/huffman_decode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

// Decodes a Huffman block without its mode byte from the front of `payload`; returns the bytes used.
Result<std::size_t> decode_huffman(ConstByteSpan payload, ByteSpan block, std::span<std::uint64_t> table) {
  ByteCursor cursor(payload);
  const std::size_t count = stream_count(block.size());
  BITSNAP_ASSIGN(const ConstByteSpan sizes, cursor.take(count * 2, "stream sizes"));
  CodeLengths lengths;
  BITSNAP_ASSIGN(const std::size_t table_bytes, read_code_lengths(payload.subspan(cursor.offset()), lengths));
  BITSNAP_TRY(cursor.take(table_bytes, "table of code lengths"));

  std::array<HuffmanStream, kMaxStreams> streams;
  auto* const out = reinterpret_cast<std::uint8_t*>(block.data());
  const std::size_t each = stream_symbols(block.size());
  for (std::size_t s = 0; s < count; ++s) {
    const std::size_t size = load_le<std::uint16_t>(sizes.data() + 2 * s);
    BITSNAP_ASSIGN(const ConstByteSpan bits, cursor.take(size, "stream"));
    const auto* const in = reinterpret_cast<const std::uint8_t*>(bits.data());
    streams[s] = {in, in + size, out + s * each, out + (s + 1 == count ? block.size() : (s + 1) * each)};
  }
  const CodeOrder order = order_codes(lengths);
  const HuffmanCode code{order.symbols.data(), order.first.data(), lengths.data()};
  const auto* const readable_end = reinterpret_cast<const std::uint8_t*>(payload.data() + payload.size());
  const std::size_t bad =
      kernels<HuffmanDecodeKernels>().decode(code, streams.data(), count, readable_end, table.data());
  if (bad != count) {
    return fail(ErrorKind::corrupt, "stream " + std::to_string(bad) + " of " +
                                        std::to_string(streams[bad].in_end - streams[bad].in) +
                                        " bytes does not end with its last symbol");
  }
  return cursor.offset();
}

// Working memory for one block.
struct Workspace {
  std::span<std::uint64_t> table;                // kHuffmanTableEntries
  std::array<ByteSpan, kMaxSparseLevels> masks;  // of a block, and of its mask
  ByteSpan values;                               // kBlockBytes
};

// Decodes a block that is not sparse from the front of `payload`; returns the bytes used.
Result<std::size_t> decode_plain(ConstByteSpan payload, ByteSpan block, const Workspace& work) {
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const std::uint8_t mode, cursor.read<std::uint8_t>("mode of the block"));
  switch (static_cast<BlockMode>(mode)) {
    case BlockMode::raw: {
      BITSNAP_ASSIGN(const ConstByteSpan bytes, cursor.take(block.size(), "raw block"));
      std::memcpy(block.data(), bytes.data(), block.size());
      return cursor.offset();
    }
    case BlockMode::fill: {
      BITSNAP_ASSIGN(const std::uint8_t byte, cursor.read<std::uint8_t>("byte to repeat"));
      std::memset(block.data(), byte, block.size());
      return cursor.offset();
    }
    case BlockMode::huffman: {
      BITSNAP_ASSIGN(const std::size_t used, decode_huffman(payload.subspan(1), block, work.table));
      return 1 + used;
    }
    case BlockMode::sparse: break;
  }
  return fail(ErrorKind::corrupt, "mode of the block is " + std::to_string(mode) + ", which is not valid here");
}

Result<std::size_t> decode_block(ConstByteSpan payload, ByteSpan block, const Workspace& work, std::size_t level);

// Decodes a sparse block without its mode byte from the front of `payload`; returns the bytes used.
Result<std::size_t> decode_sparse(ConstByteSpan payload, ByteSpan block, const Workspace& work, std::size_t level) {
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const std::uint8_t common, cursor.read<std::uint8_t>("common byte"));
  const ByteSpan mask = work.masks[level].first(mask_bytes(block.size()));
  BITSNAP_ASSIGN(const std::size_t mask_used, decode_block(payload.subspan(1), mask, work, level + 1));
  BITSNAP_TRY(cursor.take(mask_used, "mask"));
  if (block.size() % 8 != 0 && std::to_integer<unsigned>(mask.back()) >> (block.size() % 8) != 0) {
    return fail(ErrorKind::corrupt, "mask of a sparse block marks bytes after its end");
  }
  const ByteSpan values = work.values.first(count_changed(mask.data(), block.size()));
  if (!values.empty()) {
    BITSNAP_ASSIGN(const std::size_t used, decode_plain(payload.subspan(cursor.offset()), values, work));
    BITSNAP_TRY(cursor.take(used, "marked bytes"));
  }
  std::memset(block.data(), common, block.size());
  scatter_changed(block.data(), mask.data(), values.data(), block.size(), 1, block.data());
  return cursor.offset();
}

// Decodes a block (level 0) or its mask (level 1) from the front of `payload`; returns the bytes used.
Result<std::size_t> decode_block(ConstByteSpan payload, ByteSpan block, const Workspace& work, std::size_t level) {
  ByteCursor cursor(payload);
  BITSNAP_ASSIGN(const std::uint8_t mode, cursor.read<std::uint8_t>("mode of the block"));
  if (static_cast<BlockMode>(mode) != BlockMode::sparse || level == kMaxSparseLevels) {
    return decode_plain(payload, block, work);
  }
  BITSNAP_ASSIGN(const std::size_t used, decode_sparse(payload.subspan(1), block, work, level));
  return 1 + used;
}

}  // namespace

Result<std::size_t> decode_plane(ConstByteSpan payload, ByteSpan plane, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  Workspace work;
  BITSNAP_ASSIGN(work.table, scratch.take_array<std::uint64_t>(kHuffmanTableEntries));
  BITSNAP_ASSIGN(work.masks[0], scratch.take(mask_bytes(kBlockBytes)));
  BITSNAP_ASSIGN(work.masks[1], scratch.take(mask_bytes(mask_bytes(kBlockBytes))));
  BITSNAP_ASSIGN(work.values, scratch.take(kBlockBytes));
  std::size_t offset = 0;
  for (std::size_t begin = 0; begin < plane.size(); begin += kBlockBytes) {
    const std::size_t size = std::min(kBlockBytes, plane.size() - begin);
    Result<std::size_t> used = decode_block(payload.subspan(offset), plane.subspan(begin, size), work, 0);
    if (!used) {
      return tl::unexpected(std::move(used).error().within("block " + std::to_string(begin / kBlockBytes) +
                                                           " of the plane, at offset " + std::to_string(offset)));
    }
    offset += *used;
  }
  return offset;
}

}  // namespace bitsnap::entropy
