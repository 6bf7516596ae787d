// Decoding of byte planes: docs/spec/entropy.md. Every size is checked against the payload before a kernel runs.
#include <string>

#include "base/cpu_dispatch.hpp"
#include "entropy/byte_block.hpp"
#include "entropy/huffman.hpp"
#include "entropy/huffman_decode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

constexpr KernelTable<std::size_t(const HuffmanCode&, HuffmanStream*, std::size_t, const std::uint8_t*,
                                  std::uint64_t*) noexcept>
    kHuffmanDecode{huffman_decode_scalar, BITSNAP_X86(huffman_decode_avx2, nullptr)};

// Decodes a Huffman block from the front of `payload`, which begins behind the mode byte; returns the bytes it took.
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
  const std::size_t bad = kHuffmanDecode.pick()(code, streams.data(), count, readable_end, table.data());
  if (bad != count) {
    return fail(ErrorKind::corrupt, "stream " + std::to_string(bad) + " of " +
                                        std::to_string(streams[bad].in_end - streams[bad].in) +
                                        " bytes does not end with its last symbol");
  }
  return cursor.offset();
}

// Decodes the block at the front of `payload`; returns the bytes it took.
Result<std::size_t> decode_block(ConstByteSpan payload, ByteSpan block, std::span<std::uint64_t> table) {
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
      BITSNAP_ASSIGN(const std::size_t used, decode_huffman(payload.subspan(1), block, table));
      return 1 + used;
    }
  }
  return fail(ErrorKind::corrupt, "mode of the block is " + std::to_string(mode) + ", expected 0, 1 or 2");
}

}  // namespace

Result<std::size_t> decode_plane(ConstByteSpan payload, ByteSpan plane, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const std::span<std::uint64_t> table, scratch.take_array<std::uint64_t>(kHuffmanTableEntries));
  std::size_t offset = 0;
  for (std::size_t begin = 0; begin < plane.size(); begin += kBlockBytes) {
    const std::size_t size = std::min(kBlockBytes, plane.size() - begin);
    Result<std::size_t> used = decode_block(payload.subspan(offset), plane.subspan(begin, size), table);
    if (!used) {
      return tl::unexpected(std::move(used).error().within("block " + std::to_string(begin / kBlockBytes) +
                                                           " of the plane, at offset " + std::to_string(offset)));
    }
    offset += *used;
  }
  return offset;
}

}  // namespace bitsnap::entropy
