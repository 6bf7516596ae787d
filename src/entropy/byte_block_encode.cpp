// Encoding of byte planes: docs/spec/entropy.md. Chooses the mode of each block and writes it.
#include "entropy/byte_block_encode.hpp"

#include <string>

#include "base/cpu_dispatch.hpp"
#include "entropy/change_mask.hpp"
#include "entropy/code_lengths_encode.hpp"
#include "entropy/histogram.hpp"
#include "entropy/huffman.hpp"
#include "entropy/huffman_encode_kernel.hpp"

namespace bitsnap::entropy {
namespace {

// The least saving that is worth decoding a block. The constant part leaves room for the kernel's overhang: a Huffman
// block plus kEncodeOverhang bytes never exceeds the raw block.
constexpr std::size_t kMinSavedBytes = kEncodeOverhang;
constexpr std::size_t kMinSavedShare = 128;

// Shorter masks are not sparse themselves: the saving does not pay for decoding another level.
constexpr std::size_t kMinSparseMaskBytes = 1024;

// A block that is not sparse.
struct PlainPlan {
  BlockMode mode = BlockMode::raw;
  std::size_t size_bytes = 0;  // with the mode byte; for a Huffman block up to 7 bytes too large
  CodeLengths lengths;         // of a Huffman block
};

struct SparsePlan {
  std::byte common{0};
  std::size_t marked = 0;
  PlainPlan values;
};

// A sparse block with `levels` nested masks: the innermost mask in a plain mode, and the values of each level.
struct BlockPlan {
  std::size_t size_bytes = 0;  // with the mode byte; up to 32 bytes too large
  std::size_t levels = 0;
  std::array<SparsePlan, kMaxSparseLevels> sparse;
  PlainPlan plain;
};

// Working memory for one block.
struct Workspace {
  ByteSpan common;                               // kBlockBytes copies of the common byte
  std::array<ByteSpan, kMaxSparseLevels> masks;  // of a block, and of its mask
  ByteSpan values;                               // kBlockBytes
};

[[nodiscard]] Result<Workspace> take_workspace(Scratch& scratch) {
  Workspace work;
  BITSNAP_ASSIGN(work.common, scratch.take(kBlockBytes));
  BITSNAP_ASSIGN(work.masks[0], scratch.take(mask_bytes(kBlockBytes)));
  BITSNAP_ASSIGN(work.masks[1], scratch.take(mask_bytes(mask_bytes(kBlockBytes))));
  BITSNAP_ASSIGN(work.values, scratch.take(kBlockBytes));
  return work;
}

constexpr std::size_t least_saving(std::size_t block_bytes) noexcept {
  return std::max(kMinSavedBytes, block_bytes / kMinSavedShare);
}

// Plans a block from its counts alone. Precondition: size > 0.
void plan_counted(const Histogram& counts, std::size_t size, PlainPlan& plan) noexcept {
  plan.mode = BlockMode::raw;
  plan.size_bytes = 1 + size;
  if (*std::max_element(counts.begin(), counts.end()) == size) {
    plan.mode = BlockMode::fill;
    plan.size_bytes = 2;
    return;
  }
  choose_code_lengths(counts, plan.lengths);
  std::size_t bits = 0;
  for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) {
    bits += std::size_t{counts[symbol]} * plan.lengths[symbol];
  }
  std::array<std::byte, kMaxCodeLengthBytes> table;
  const std::size_t streams = stream_count(size);
  // Each stream is padded to a byte.
  const std::size_t coded = 1 + 2 * streams + write_code_lengths(plan.lengths, table.data()) + (bits + 7 * streams) / 8;
  if (coded + least_saving(size) > plan.size_bytes) return;
  plan.mode = BlockMode::huffman;
  plan.size_bytes = coded;
}

// Returns whether `counts` was filled; a quick look can make counting unnecessary.
bool plan_plain(ConstByteSpan block, PlainPlan& plan, Histogram& counts) noexcept {
  plan.mode = BlockMode::raw;
  plan.size_bytes = 1 + block.size();
  if (std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0) {
    plan.mode = BlockMode::fill;
    plan.size_bytes = 2;
    return false;
  }
  if (looks_incompressible(block.data(), block.size())) return false;
  count_bytes(block.data(), block.size(), counts);
  plan_counted(counts, block.size(), plan);
  return true;
}

// Leaves the masks of a sparse block in `work.masks`.
void plan_block(ConstByteSpan block, BlockPlan& plan, const Workspace& work) noexcept {
  Histogram counts;
  bool counted = plan_plain(block, plan.plain, counts);
  plan.levels = 0;
  plan.size_bytes = plan.plain.size_bytes;
  std::size_t values_bytes = 0;  // common and marked bytes of the levels so far
  ConstByteSpan data = block;
  while (counted && plan.levels < kMaxSparseLevels) {
    if (plan.levels > 0 && data.size() < kMinSparseMaskBytes) return;
    // A Huffman code spends at least a bit on the most common byte; if that is half of the block, a mask can be
    // smaller.
    const auto commonest = std::max_element(counts.begin(), counts.end());
    if (*commonest < data.size() / 2) return;
    SparsePlan& sparse = plan.sparse[plan.levels];
    sparse.common = static_cast<std::byte>(commonest - counts.begin());
    sparse.marked = data.size() - *commonest;
    *commonest = 0;
    plan_counted(counts, sparse.marked, sparse.values);
    const ByteSpan mask = work.masks[plan.levels].first(mask_bytes(data.size()));
    std::memset(work.common.data(), std::to_integer<int>(sparse.common), data.size());
    changed_mask(data.data(), work.common.data(), data.size(), 1, mask.data());
    PlainPlan mask_plan;
    counted = plan_plain(mask, mask_plan, counts);
    values_bytes += 2 + sparse.values.size_bytes;
    if (values_bytes + mask_plan.size_bytes + least_saving(data.size()) > plan.size_bytes) return;
    plan.size_bytes = values_bytes + mask_plan.size_bytes;
    plan.plain = mask_plan;
    ++plan.levels;
    data = mask;
  }
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

// Writes a Huffman block without its mode byte and returns the bytes. `out` has room for the planned size plus
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
    const std::size_t size =
        kernels<HuffmanEncodeKernels>().encode(table, reinterpret_cast<const std::uint8_t*>(part.data()), part.size(),
                                               reinterpret_cast<std::uint8_t*>(out + offset));
    store_le(out + 2 * s, static_cast<std::uint16_t>(size));
    offset += size;
  }
  return offset;
}

// Writes a block that is not sparse and returns the bytes.
std::size_t write_plain(ConstByteSpan block, const PlainPlan& plan, std::byte* out) noexcept {
  out[0] = static_cast<std::byte>(plan.mode);
  if (plan.mode == BlockMode::huffman) return 1 + write_huffman(block, plan.lengths, out + 1);
  const std::size_t size = plan.mode == BlockMode::fill ? 1 : block.size();
  std::memcpy(out + 1, block.data(), size);
  return 1 + size;
}

// Writes a block (level 0) or its mask (level 1) and returns the bytes. plan_block left the masks in `work`.
std::size_t write_block(ConstByteSpan block, const BlockPlan& plan, const Workspace& work, std::size_t level,
                        std::byte* out) noexcept {
  // The second condition never decides; g++ needs it to see the bound when it unrolls at -O3.
  if (level == plan.levels || level == kMaxSparseLevels) return write_plain(block, plan.plain, out);
  const SparsePlan& sparse = plan.sparse[level];
  const ConstByteSpan mask = work.masks[level].first(mask_bytes(block.size()));
  out[0] = static_cast<std::byte>(BlockMode::sparse);
  out[1] = sparse.common;
  const std::size_t offset = 2 + write_block(mask, plan, work, level + 1, out + 2);
  gather_changed(block.data(), mask.data(), block.size(), 1, work.values.data());
  return offset + write_plain(work.values.first(sparse.marked), sparse.values, out + offset);
}

}  // namespace

Result<std::size_t> encode_plane(ConstByteSpan plane, ByteSpan out, Scratch& scratch) {
  if (out.size() < max_encoded_plane_size(plane.size())) {
    return fail(ErrorKind::invalid_argument, "encoding a plane of " + std::to_string(plane.size()) +
                                                 " bytes needs room for " +
                                                 std::to_string(max_encoded_plane_size(plane.size())) +
                                                 " bytes, found " + std::to_string(out.size()));
  }
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const Workspace work, take_workspace(scratch));
  BlockPlan plan;
  std::size_t offset = 0;
  for (std::size_t begin = 0; begin < plane.size(); begin += kBlockBytes) {
    const ConstByteSpan block = plane.subspan(begin, std::min(kBlockBytes, plane.size() - begin));
    plan_block(block, plan, work);
    offset += write_block(block, plan, work, 0, out.data() + offset);
  }
  return offset;
}

Result<std::size_t> encoded_plane_size(ConstByteSpan plane, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const Workspace work, take_workspace(scratch));
  BlockPlan plan;
  std::size_t size = 0;
  for (std::size_t begin = 0; begin < plane.size(); begin += kBlockBytes) {
    plan_block(plane.subspan(begin, std::min(kBlockBytes, plane.size() - begin)), plan, work);
    size += plan.size_bytes;
  }
  return size;
}

}  // namespace bitsnap::entropy
