// Writes elements whose topmost byte is coded in lanes: docs/spec/rans.md. Samples decide whether, and with which
// tables; then one pass from the last element to the first writes everything.
#include "entropy/split_elements_encode.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.hpp"
#include "base/cpu_dispatch.hpp"
#include "entropy/element_sample_encode.hpp"
#include "entropy/rans.hpp"
#include "entropy/rans_encode_kernel.hpp"
#include "entropy/rans_table_encode.hpp"
#include "entropy/split_tables_encode.hpp"

namespace bitsnap::entropy {
namespace {

static_assert(kEncodeLanes == kRansLanes && kEncodeGroups == kRansGroups);

class ElementsAtHand final : public SplitSamples {
 public:
  ElementsAtHand(ConstByteSpan data, const SplitShape& shape) noexcept
      : data_(data), block_bytes_(kRansBlockElements * shape.element_bytes) {}
  ConstByteSpan of_all() const noexcept override { return data_; }
  ConstByteSpan of_block(std::size_t block) const noexcept override {
    return data_.subspan(block * block_bytes_, std::min(block_bytes_, data_.size() - block * block_bytes_));
  }
  bool has_one_symbol(std::size_t block, const SplitShape& shape) const noexcept override {
    SplitShape own = shape;
    own.elements = of_block(block).size() / shape.element_bytes;
    return entropy::has_one_symbol(of_block(block).data(), own);
  }

 private:
  const ConstByteSpan data_;
  const std::size_t block_bytes_;
};

// Makes elements of this symbol, for the unused lanes of the last round.
void fill_with_symbol(std::uint8_t symbol, const SplitShape& shape, std::span<std::uint8_t> elements) noexcept {
  const std::size_t width = 8 * shape.element_bytes;
  std::uint32_t element = std::uint32_t{symbol} << (width - 8);
  if (shape.rotated) element >>= 1;
  for (std::size_t i = 0; i < elements.size(); i += shape.element_bytes) {
    std::memcpy(elements.data() + i, &element, shape.element_bytes);
  }
}

// The streams; kernels write each downwards into its own buffer.
struct Streams {
  RansEncoding at;
  std::array<std::uint8_t*, kRansGroups> ends;
  std::uint8_t* escapes_end;

  [[nodiscard]] std::size_t size_of(std::size_t group) const noexcept {
    return static_cast<std::size_t>(ends[group] - at.out[group]);
  }
  [[nodiscard]] std::size_t escapes_size() const noexcept { return static_cast<std::size_t>(escapes_end - at.escapes); }
};

Result<Streams> take_streams(const SplitShape& shape, Scratch& scratch) {
  Streams streams;
  const std::size_t rounds = divide_up(shape.elements, kRansRoundElements);
  const std::size_t each = kWritableBelow + rounds * kRansLanes;
  const std::size_t escapes = kWritableBelow + rounds * kRansRoundElements;
  BITSNAP_ASSIGN(const std::span<std::uint8_t> room, scratch.take_array<std::uint8_t>(kRansGroups * each + escapes));
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    streams.ends[group] = streams.at.out[group] = room.data() + (group + 1) * each;
    std::fill_n(streams.at.low[group], kRansLanes, static_cast<std::uint8_t>(kRansFirstState % 256));
    std::fill_n(streams.at.high[group], kRansLanes, static_cast<std::uint8_t>(kRansFirstState / 256));
  }
  streams.escapes_end = streams.at.escapes = room.data() + room.size();
  return streams;
}

// Codes all elements, the last first, and writes their lower bytes.
Result<void> encode_blocks(ConstByteSpan data, const SplitShape& shape, std::span<const RansTable> tables,
                           RansEncoding& at, std::uint8_t* rest, Scratch& scratch) {
  const auto kernel = kernels<RansEncodeKernels>().encode[std::countr_zero(shape.element_bytes)][shape.rotated ? 1 : 0];
  const std::size_t rest_bytes = shape.element_bytes - 1;
  const auto* const elements = reinterpret_cast<const std::uint8_t*>(data.data());
  for (std::size_t block = tables.size(); block-- > 0;) {
    const std::size_t first = block * kRansBlockElements;
    const std::size_t count = std::min(kRansBlockElements, shape.elements - first);
    const std::size_t rounds = count / kRansRoundElements;
    const std::size_t left = count % kRansRoundElements;
    RansEncodeTable table;
    fill_encode_table(tables[block], table);
    if (left > 0) {
      const Scratch::Frame frame(scratch);
      const std::size_t done = first + rounds * kRansRoundElements;
      BITSNAP_ASSIGN(const std::span<std::uint8_t> side_elements,
                     scratch.take_array<std::uint8_t>(kRansRoundElements * shape.element_bytes));
      BITSNAP_ASSIGN(const std::span<std::uint8_t> side_rest,
                     scratch.take_array<std::uint8_t>(kRansRoundElements * rest_bytes));
      fill_with_symbol(commonest_symbol(tables[block]), shape, side_elements);
      std::copy_n(elements + done * shape.element_bytes, left * shape.element_bytes, side_elements.begin());
      kernel(at, table, side_elements.data(), 1, side_rest.data());
      std::copy_n(side_rest.begin(), left * rest_bytes, rest + done * rest_bytes);
    }
    kernel(at, table, elements + first * shape.element_bytes, rounds, rest + first * rest_bytes);
  }
  return {};
}

class Writer {
 public:
  explicit Writer(std::byte* out) noexcept : out_(out) {}
  void put_size(std::size_t size) noexcept {
    store_le(out_, static_cast<std::uint32_t>(size));
    out_ += sizeof(std::uint32_t);
  }
  void put_bytes(const std::uint8_t* bytes, std::size_t size) noexcept {
    std::memcpy(out_, bytes, size);
    out_ += size;
  }
  void put_table(const RansTable& table) noexcept { out_ += write_rans_table(table, out_); }
  void skip(std::size_t size) noexcept { out_ += size; }
  [[nodiscard]] const std::byte* at() const noexcept { return out_; }

 private:
  std::byte* out_;
};

}  // namespace

std::size_t max_split_size(const SplitShape& shape) noexcept {
  // A payload that would be longer than the elements is not assembled.
  return std::max(kSplitSizesBytes + shape.rest_bytes(), shape.elements * shape.element_bytes);
}

Result<std::optional<std::size_t>> estimate_split(ConstByteSpan data, const SplitShape& shape, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const std::span<RansTable> tables,
                 scratch.take_array<RansTable>(divide_up(shape.elements, kRansBlockElements)));
  const SplitTables choice = choose_split_tables(ElementsAtHand(data, shape), shape, tables);
  if (!choice.are_worth_using) return std::nullopt;
  return fixed_split_size(shape, tables) + static_cast<std::size_t>(choice.coded_bits / 8);
}

Result<std::optional<std::size_t>> encode_split(ConstByteSpan data, const SplitShape& shape, ByteSpan out,
                                                Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  BITSNAP_ASSIGN(const std::span<RansTable> tables,
                 scratch.take_array<RansTable>(divide_up(shape.elements, kRansBlockElements)));
  if (!choose_split_tables(ElementsAtHand(data, shape), shape, tables).are_worth_using) return std::nullopt;
  BITSNAP_ASSIGN(Streams streams, take_streams(shape, scratch));
  auto* const rest = reinterpret_cast<std::uint8_t*>(out.data()) + kSplitSizesBytes;
  BITSNAP_TRY(encode_blocks(data, shape, tables, streams.at, rest, scratch));

  std::size_t size = fixed_split_size(shape, tables) + streams.escapes_size();
  for (std::size_t group = 0; group < kRansGroups; ++group) size += streams.size_of(group);
  if (size >= data.size()) return std::nullopt;

  Writer writer(out.data());
  for (std::size_t group = 0; group < kRansGroups; ++group) writer.put_size(streams.size_of(group));
  writer.put_size(streams.escapes_size());
  writer.skip(shape.rest_bytes());
  for (const RansTable& table : tables) writer.put_table(table);
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    writer.put_bytes(streams.at.out[group], streams.size_of(group));
  }
  writer.put_bytes(streams.at.escapes, streams.escapes_size());
  for (std::size_t group = 0; group < kRansGroups; ++group) {
    writer.put_bytes(streams.at.low[group], kRansLanes);
    writer.put_bytes(streams.at.high[group], kRansLanes);
  }
  return static_cast<std::size_t>(writer.at() - out.data());
}

}  // namespace bitsnap::entropy
