// Decodes factored_split: adds the scales of row and column to coded values. See spec.md. Works part by part so that
// contexts and values stay in the cache.
#include <cstring>

#include "base/cpu_dispatch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/factored_split/factored_split.hpp"
#include "codec/payload_checks.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {
namespace {

constexpr unsigned kMaxShift = 15;

// The fields before the low bytes, checked.
struct Scales {
  FactoredGeometry geometry;
  std::uint16_t base = 0;
  unsigned row_shift = 0;
  std::size_t row_elements = 0;
  std::size_t first_column = 0;
  std::span<const std::uint8_t> rows;
  ConstByteSpan classes;             // four rows per byte; or empty
  std::span<std::uint16_t> columns;  // in the form that is added to values

  [[nodiscard]] std::uint16_t row(std::size_t i) const noexcept {
    return static_cast<std::uint16_t>(base + ((rows[i] - 1U) << row_shift));
  }
  [[nodiscard]] std::uint8_t row_class(std::size_t i) const noexcept {
    if (classes.empty()) return 0;
    return static_cast<std::uint8_t>(std::to_integer<unsigned>(classes[i / 4]) >> i % 4 * 2 & 3);
  }
};

Result<Scales> read_scales(ByteCursor& cursor, const ChunkContext& context, const FactoredFloats& floats,
                           Scratch& scratch) {
  Scales scales;
  BITSNAP_ASSIGN(const auto flags, cursor.read<std::uint8_t>("factored_split payload: flags"));
  const bool has_four = (flags & kFactoredColumns4) != 0;
  const bool has_eight = (flags & kFactoredColumns8) != 0;
  if (flags > kFactoredFlags || (has_four && has_eight)) {
    return corrupt("factored_split payload: flags are {}, expected known ones with at most one size of columns", flags);
  }
  scales.geometry = {.element_bytes = floats.element_bytes(),
                     .low_bytes = floats.low_bytes(),
                     .rotated = (flags & kFactoredRotated) != 0};
  BITSNAP_ASSIGN(const auto shifts, cursor.read<std::uint8_t>("factored_split payload: shifts"));
  scales.row_shift = shifts & kMaxShift;
  const unsigned column_shift = shifts >> 4;
  BITSNAP_ASSIGN(scales.base, cursor.read<std::uint16_t>("factored_split payload: base"));
  BITSNAP_ASSIGN(scales.row_elements, cursor.read<std::uint32_t>("factored_split payload: elements of a row"));
  if (scales.row_elements < kFewestRowElements || scales.row_elements > kChunkElements) {
    return corrupt("factored_split payload: a row has {} elements, expected {} to {}", scales.row_elements,
                   kFewestRowElements, kChunkElements);
  }
  BITSNAP_ASSIGN(scales.first_column, cursor.read<std::uint32_t>("factored_split payload: first column"));
  if (scales.first_column >= scales.row_elements) {
    return corrupt("factored_split payload: first column is {}, expected below {}", scales.first_column,
                   scales.row_elements);
  }
  const std::size_t rows = factored_rows(context.elements, scales.row_elements, scales.first_column);
  BITSNAP_ASSIGN(const ConstByteSpan row_bytes, cursor.take(rows, "factored_split payload: scales of rows"));
  scales.rows = {reinterpret_cast<const std::uint8_t*>(row_bytes.data()), rows};
  if ((flags & kFactoredRowClasses) != 0) {
    BITSNAP_ASSIGN(scales.classes,
                   cursor.take(divide_up<std::size_t>(rows, 4), "factored_split payload: classes of rows"));
    if (rows % 4 != 0 && std::to_integer<unsigned>(scales.classes.back()) >> rows % 4 * 2 != 0) {
      return corrupt("factored_split payload: bits after the class of the last row are set");
    }
  }
  BITSNAP_ASSIGN(scales.columns, scratch.take_array<std::uint16_t>(scales.row_elements));
  if (has_eight) {
    BITSNAP_ASSIGN(const ConstByteSpan columns,
                   cursor.take(scales.row_elements, "factored_split payload: scales of columns"));
    for (std::size_t i = 0; i < columns.size(); ++i) {
      scales.columns[i] = static_cast<std::uint16_t>(std::to_integer<unsigned>(columns[i]) << column_shift);
    }
  } else if (has_four) {
    BITSNAP_ASSIGN(const ConstByteSpan columns, cursor.take(divide_up<std::size_t>(scales.row_elements, 2),
                                                            "factored_split payload: scales of columns"));
    for (std::size_t i = 0; i < scales.row_elements; ++i) {
      const unsigned scale = std::to_integer<unsigned>(columns[i / 2]) >> i % 2 * 4 & 15;
      scales.columns[i] = static_cast<std::uint16_t>(scale << column_shift);
    }
    if (scales.row_elements % 2 != 0 && std::to_integer<unsigned>(columns.back()) > 15) {
      return corrupt("factored_split payload: bits after the scale of the last column are set");
    }
  } else {
    std::memset(scales.columns.data(), 0, scales.columns.size_bytes());
  }
  return scales;
}

// Fills the rows without coded elements with zeros.
void fill_zero_rows(const Scales& scales, std::size_t element_bytes, ByteSpan out) noexcept {
  std::size_t begin = 0;
  for (std::size_t row = 0; begin < out.size(); ++row) {
    const std::size_t first = row == 0 ? scales.first_column : 0;
    const std::size_t size = std::min((scales.row_elements - first) * element_bytes, out.size() - begin);
    if (scales.rows[row] == 0) std::memset(out.data() + begin, 0, size);
    begin += size;
  }
}

class FactoredSplitDecoder final : public Decoder {
 public:
  FactoredSplitDecoder() noexcept
      : Decoder(CodecId::factored_split, "factored_split",
                "floats: the exponent coded relative to scales of row and column") {}
  bool accepts(DType dtype, std::span<const Input> inputs) const noexcept override {
    return has_factors(dtype) && inputs.empty();
  }

  Result<void> decode(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                      Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    ByteCursor cursor(payload);
    ShortHead head{.floats = {.dtype = context.dtype}, .exceptions = {}};
    if (is_of_short_elements(payload)) {
      BITSNAP_ASSIGN(head, read_short_head(cursor, context));
    }
    const FactoredFloats floats{.floats = head.floats};
    if (!floats.can_be()) {
      return corrupt(
          "factored_split payload: {} bits are left out of {}, expected a number that leaves enough mantissa bits",
          head.floats.zero_bits, dtype_name(context.dtype));
    }
    BITSNAP_ASSIGN(const Scales scales, read_scales(cursor, context, floats, scratch));
    RowWalk walk(scales.rows, context.elements, scales.row_elements, scales.first_column);
    const std::size_t coded = count_coded(walk);
    const std::size_t element_bytes = element_size(context.dtype);
    const std::size_t low_bytes = floats.low_bytes();
    const bool are_shortened = head.floats.zero_bits > 0;
    if (coded < context.elements) fill_zero_rows(scales, element_bytes, out);
    if (coded == 0) {
      put_exceptions(head, out);
      return check_payload_size("factored_split", payload.size(), cursor.offset());
    }
    BITSNAP_ASSIGN(const ConstByteSpan low, cursor.take(coded * low_bytes, "factored_split payload: low bytes"));
    entropy::ClassLanesDecoder lanes;
    BITSNAP_TRY(lanes.open(payload.subspan(cursor.offset())));

    BITSNAP_ASSIGN(const std::span<std::uint8_t> contexts, scratch.take_array<std::uint8_t>(kFactoredPart));
    BITSNAP_ASSIGN(const std::span<std::uint16_t> values, scratch.take_array<std::uint16_t>(kFactoredPart));
    BITSNAP_ASSIGN(const ByteSpan shortened, scratch.take(are_shortened ? kFactoredPart * floats.element_bytes() : 0));
    const auto put_on_scales = kernels<FactoredRowKernels>().put_on_scales;
    const auto* low_at = reinterpret_cast<const std::uint8_t*>(low.data());
    for (std::size_t first = 0; first < coded; first += kFactoredPart) {
      const std::size_t count = std::min(kFactoredPart, coded - first);
      const std::size_t rounds = divide_up(count, entropy::kRansRoundElements);
      // The unused lanes of the last round have the context 0.
      std::memset(contexts.data(), 0, rounds * entropy::kRansRoundElements);
      if (!scales.classes.empty()) {
        RowWalk ahead = walk;
        for (std::size_t at = 0; at < count;) {
          const RowWalk::Piece piece = ahead.next(count - at);
          std::memset(contexts.data() + at, scales.row_class(piece.row), piece.count);
          at += piece.count;
        }
      }
      lanes.decode(contexts.data(), rounds, values.data(), {});
      for (std::size_t at = 0; at < count;) {
        const RowWalk::Piece piece = walk.next(count - at);
        const ByteSpan elements = out.subspan(piece.position * element_bytes, piece.count * element_bytes);
        std::byte* const to = are_shortened ? shortened.data() : elements.data();
        put_on_scales(values.data() + at, low_at + (first + at) * low_bytes, piece.count, scales.geometry,
                      scales.row(piece.row), scales.columns.data() + piece.column, reinterpret_cast<std::uint8_t*>(to));
        if (are_shortened) lengthen_elements(to, head.floats, elements);
        at += piece.count;
      }
    }
    put_exceptions(head, out);
    return lanes.check_end();
  }
};

}  // namespace

const Decoder& factored_split_decoder() noexcept { return only<FactoredSplitDecoder>(); }

}  // namespace bitsnap::codec
