// Encodes factored_split: removes the scales of row and column and codes the rest. See spec.md. Works from the last
// part to the first; low bytes go directly to their place in the payload.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/encoder.hpp"
#include "codec/factored_split/factored_scales_encode.hpp"
#include "codec/factored_split/factored_split.hpp"
#include "codec/short_elements_encode.hpp"
#include "entropy/class_lanes_encode.hpp"

namespace bitsnap::codec {
namespace {

// Chunks of at most this size are estimated by encoding them.
constexpr std::size_t kSmallFactoredChunk = 32768;

constexpr std::size_t kMaxParts = divide_up(static_cast<std::size_t>(kChunkElements), kFactoredPart);

// Writes header and scales; returns their end.
std::byte* write_scales(const FactoredPlan& plan, std::byte* out) noexcept {
  const std::uint8_t columns =
      plan.column_bits == 0 ? std::uint8_t{0} : (plan.column_bits == 4 ? kFactoredColumns4 : kFactoredColumns8);
  out[0] = static_cast<std::byte>((plan.geometry.rotated ? kFactoredRotated : 0) |
                                  (plan.has_classes ? kFactoredRowClasses : 0) | columns);
  out[1] = static_cast<std::byte>(plan.row_shift | plan.column_shift << 4);
  store_le(out + 2, plan.base);
  store_le(out + 4, static_cast<std::uint32_t>(plan.rows.row_elements));
  store_le(out + 8, static_cast<std::uint32_t>(plan.rows.first_column));
  out += kFactoredHeaderBytes;
  std::memcpy(out, plan.scales.data(), plan.scales.size());
  out += plan.scales.size();
  if (plan.has_classes) {
    const std::size_t size = divide_up<std::size_t>(plan.classes.size(), 4);
    std::memset(out, 0, size);
    for (std::size_t i = 0; i < plan.classes.size(); ++i) {
      out[i / 4] |= static_cast<std::byte>(plan.classes[i] << i % 4 * 2);
    }
    out += size;
  }
  const std::size_t size = divide_up<std::size_t>(plan.columns.size() * plan.column_bits, 8);
  std::memset(out, 0, size);
  for (std::size_t i = 0; i < size * 8 / std::max(plan.column_bits, 1U) && i < plan.columns.size(); ++i) {
    const std::size_t bit = i * plan.column_bits;
    out[bit / 8] |= static_cast<std::byte>(plan.columns[i] << bit % 8);
  }
  return out + size;
}

class FactoredSplitEncoder final : public Encoder {
 public:
  FactoredSplitEncoder() noexcept : Encoder(factored_split_decoder()) {}

  bool analyzes_whole_chunks(DType) const noexcept override { return true; }

  // The payload is smaller than the chunk, but the encoder writes scales and low bytes before it knows that.
  std::size_t max_encoded_size(DType dtype, std::size_t elements) const noexcept override {
    const std::size_t rows = elements / kFewestRowElements + 2;
    return elements * element_size(dtype) + max_short_head_bytes(elements) + kFactoredHeaderBytes + 2 * rows + elements;
  }

  Result<std::optional<Estimate>> analyze(ConstByteSpan chunk, const EncodeContext& context, std::size_t elements,
                                          Scratch& scratch) const override {
    if (elements <= kSmallFactoredChunk) return Encoder::analyze(chunk, context, elements, scratch);
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(const Elements all, shorten(chunk, context.dtype, scratch));
    BITSNAP_ASSIGN(const std::uint64_t own, estimate(all, context, scratch));
    const std::uint64_t size = all.head_bytes() + own;
    if (size >= chunk.size()) return std::nullopt;
    return Estimate{.payload_bytes = size};
  }

  Result<PayloadSize> encode(ConstByteSpan data, const EncodeContext& context, ByteSpan out,
                             Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    BITSNAP_ASSIGN(Elements all, shorten(data, context.dtype, scratch));
    const std::size_t head_bytes = all.head_bytes();
    BITSNAP_ASSIGN(const std::optional<std::size_t> size,
                   encode_elements(all, context, data.size() - head_bytes, out.subspan(head_bytes), scratch));
    if (!size) return std::nullopt;
    if (head_bytes > 0) all.shortener.write_head(out.data());
    return head_bytes + *size;
  }

 private:
  // The elements of a chunk, shortened if that pays.
  struct Elements {
    FactoredFloats floats;
    ConstByteSpan bytes;
    Shortener shortener = {};

    [[nodiscard]] std::size_t head_bytes() const noexcept {
      return floats.floats.zero_bits > 0 ? shortener.head_bytes() : 0;
    }
  };

  static Result<Elements> shorten(ConstByteSpan data, DType dtype, Scratch& scratch) {
    Elements all{.floats = {.floats = {.dtype = dtype, .zero_bits = choose_zero_bits(data, dtype)}}, .bytes = data};
    unsigned& zero_bits = all.floats.floats.zero_bits;
    while (!all.floats.can_be()) --zero_bits;
    if (zero_bits == 0) return all;
    const std::size_t elements = data.size() / element_size(dtype);
    BITSNAP_TRY(all.shortener.open(all.floats.floats, elements, scratch));
    BITSNAP_ASSIGN(const ByteSpan shortened, scratch.take(elements * all.floats.element_bytes()));
    if (all.shortener.shorten(0, data, shortened.data())) {
      all.bytes = shortened;
    } else {
      zero_bits = 0;  // too many exceptions
    }
    return all;
  }

  // Returns nullopt if the payload would not be smaller than `most` bytes.
  static Result<PayloadSize> encode_elements(const Elements& all, const EncodeContext& context, std::size_t most,
                                             ByteSpan out, Scratch& scratch) {
    BITSNAP_ASSIGN(const FactoredPlan plan, plan_chunk(all, context, scratch));
    const std::size_t before = plan.scale_bytes(plan.scales.size()) + plan.coded * all.floats.low_bytes();
    if (plan.coded == 0) {
      if (before >= most) return std::nullopt;
      return static_cast<std::size_t>(write_scales(plan, out.data()) - out.data());
    }
    if (before + plan.lane_bytes() + plan.value_bits / 8 >= most) return std::nullopt;
    std::byte* const low = write_scales(plan, out.data());
    entropy::ClassLanesEncoder lanes;
    BITSNAP_TRY(lanes.open(plan.tables, divide_up(plan.coded, entropy::kRansRoundElements), scratch));
    BITSNAP_TRY(encode_parts(all.bytes, plan, reinterpret_cast<std::uint8_t*>(low), lanes, scratch));
    const std::size_t size = before + lanes.finish();
    if (size >= most) return std::nullopt;
    lanes.write(out.data() + before);
    return size;
  }

  static Result<FactoredPlan> plan_chunk(const Elements& all, const EncodeContext& context, Scratch& scratch) {
    const FactoredRows rows = rows_to_factor(context.rows, context.elements);
    if (!rows.has_columns) {
      BITSNAP_ASSIGN(const FactoredRows found, rows_by_period(all.bytes, all.floats, scratch));
      if (found.has_columns) {
        BITSNAP_ASSIGN(FactoredPlan plan, plan_factored(all.bytes, all.floats, found, scratch));
        if (plan.column_bits > 0) return plan;
      }
    }
    return plan_factored(all.bytes, all.floats, rows, scratch);
  }

  static Result<std::uint64_t> estimate(const Elements& all, const EncodeContext& context, Scratch& scratch) {
    const FactoredRows rows = rows_to_factor(context.rows, context.elements);
    if (!rows.has_columns) {
      BITSNAP_ASSIGN(const FactoredRows found, rows_by_period(all.bytes, all.floats, scratch));
      if (found.has_columns) {
        BITSNAP_ASSIGN(const FactoredEstimate own, estimate_factored(all.bytes, all.floats, found, scratch));
        if (own.has_columns) return own.payload_bytes;
      }
    }
    BITSNAP_ASSIGN(const FactoredEstimate own, estimate_factored(all.bytes, all.floats, rows, scratch));
    return own.payload_bytes;
  }

  static Result<void> encode_parts(ConstByteSpan data, const FactoredPlan& plan, std::uint8_t* low,
                                   entropy::ClassLanesEncoder& lanes, Scratch& scratch) {
    const std::size_t element_bytes = plan.geometry.element_bytes;
    const std::size_t elements = data.size() / element_bytes;
    const std::size_t low_bytes = plan.geometry.low_bytes;
    BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kFactoredPart));
    BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kFactoredPart));
    BITSNAP_ASSIGN(const std::span<std::uint16_t> columns, scratch.take_array<std::uint16_t>(plan.columns.size()));
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i] = static_cast<std::uint16_t>(plan.columns[i] << plan.column_shift);
    }
    // The position of the walk at each part, because parts are encoded from the last to the first.
    std::array<RowWalk, kMaxParts> walks;
    const std::size_t parts = divide_up(plan.coded, kFactoredPart);
    RowWalk along(plan.scales, elements, plan.rows.row_elements, plan.rows.first_column);
    for (std::size_t part = 0; part < parts; ++part) {
      walks[part] = along;
      for (std::size_t at = 0; at < kFactoredPart;) {
        const std::size_t count = along.next(kFactoredPart - at).count;
        if (count == 0) break;
        at += count;
      }
    }
    const auto take_off_scales = kernels<FactoredRowKernels>().take_off_scales;
    for (std::size_t part = parts; part-- > 0;) {
      const std::size_t first = part * kFactoredPart;
      const std::size_t count = std::min(kFactoredPart, plan.coded - first);
      const std::size_t rounds = divide_up(count, entropy::kRansRoundElements);
      RowWalk walk = walks[part];
      for (std::size_t at = 0; at < count;) {
        const RowWalk::Piece piece = walk.next(count - at);
        take_off_scales(reinterpret_cast<const std::uint8_t*>(data.data()) + piece.position * element_bytes,
                        piece.count, plan.geometry, plan.row_of(piece.row), columns.data() + piece.column,
                        values.data() + at, low + (first + at) * low_bytes);
        std::memset(contexts.data() + at, plan.classes[piece.row], piece.count);
        at += piece.count;
      }
      for (std::size_t i = count; i < rounds * entropy::kRansRoundElements; ++i) {
        contexts[i] = 0;
        values[i] = lanes.cheapest_value(0);
      }
      lanes.encode(contexts.data(), values.data(), rounds, {});
    }
    return {};
  }
};

}  // namespace

const Encoder& factored_split_encoder() noexcept { return only<FactoredSplitEncoder>(); }

}  // namespace bitsnap::codec
