// Estimates factored_split from the same few columns of a few rows; a run of adjacent elements does not show what
// column scales save.
#include <algorithm>
#include <cstring>

#include "codec/factored_split/factored_scales_encode.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::size_t kSampleRows = 64;
constexpr std::size_t kSampleBlocks = 4;
constexpr std::size_t kBlockElements = 64;

// The whole rows of the chunk, and the position of the first.
struct WholeRows {
  std::size_t first = 0;
  std::size_t count = 0;
};

WholeRows whole_rows(const FactoredRows& rows, std::size_t elements) noexcept {
  const std::size_t first = rows.first_column == 0 ? 0 : rows.row_elements - rows.first_column;
  return {first, elements > first ? (elements - first) / rows.row_elements : 0};
}

// Item i of `count` items spread evenly from 0 to `last`.
std::size_t spread_evenly(std::size_t i, std::size_t count, std::size_t last) noexcept {
  return count > 1 ? i * last / (count - 1) : 0;
}

}  // namespace

Result<FactoredEstimate> estimate_factored(ConstByteSpan data, const FactoredFloats& floats, const FactoredRows& rows,
                                           Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::size_t element_bytes = floats.element_bytes();
  const std::size_t elements = data.size() / element_bytes;
  const WholeRows whole = whole_rows(rows, elements);
  ConstByteSpan sample = data;
  FactoredRows sample_rows = rows;
  if (whole.count > 0) {
    const std::size_t blocks = std::min(kSampleBlocks, rows.row_elements / kBlockElements);
    const std::size_t count = std::min(whole.count, kSampleRows);
    sample_rows.row_elements = blocks * kBlockElements;
    sample_rows.first_column = 0;
    BITSNAP_ASSIGN(const ByteSpan gathered, scratch.take(count * sample_rows.row_elements * element_bytes));
    std::byte* at = gathered.data();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = whole.first + spread_evenly(i, count, whole.count - 1) * rows.row_elements;
      for (std::size_t block = 0; block < blocks; ++block) {
        const std::size_t column = spread_evenly(block, blocks, rows.row_elements - kBlockElements);
        std::memcpy(at, data.data() + (row + column) * element_bytes, kBlockElements * element_bytes);
        at += kBlockElements * element_bytes;
      }
    }
    sample = gathered;
  }
  BITSNAP_ASSIGN(FactoredPlan plan, plan_factored(sample, floats, sample_rows, scratch));
  const std::size_t sample_elements = sample.size() / element_bytes;
  const std::uint64_t bits = plan.value_bits + std::uint64_t{plan.coded} * 8 * floats.low_bytes();
  plan.rows = rows;
  const std::size_t scales = plan.scale_bytes(factored_rows(elements, rows.row_elements, rows.first_column));
  return FactoredEstimate{.payload_bytes = scales + plan.lane_bytes() + bits * elements / sample_elements / 8,
                          .has_columns = plan.column_bits > 0};
}

}  // namespace bitsnap::codec
