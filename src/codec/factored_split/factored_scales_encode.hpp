// The plan of a chunk for factored_split: the scales of its rows and columns, and the tables. Integer arithmetic gives
// the same plan for the same chunk everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/encoder.hpp"
#include "codec/factored_split/factored_split.hpp"
#include "entropy/class_lanes.hpp"

namespace bitsnap::codec {

// The rows of a chunk. If the tensor's rows are unknown, or too short or too long to be useful, pieces of fixed length
// serve as rows, without columns.
struct FactoredRows {
  std::size_t row_elements = 0;
  std::size_t first_column = 0;
  bool has_columns = false;
  std::size_t whole_rows = 0;  // each column has one element per whole row
};

[[nodiscard]] FactoredRows rows_to_factor(const RowPlace& place, std::size_t elements) noexcept;

// The rows as the elements suggest them. Their columns may still not pay.
[[nodiscard]] Result<FactoredRows> rows_by_period(ConstByteSpan data, const FactoredFloats& floats, Scratch& scratch);

// The arrays are in the scratch.
struct FactoredPlan {
  FactoredGeometry geometry;
  unsigned row_shift = 0;
  unsigned column_shift = 0;
  unsigned column_bits = 0;  // 0: no columns
  std::uint16_t base = 0;
  FactoredRows rows;
  std::span<std::uint8_t> scales;    // of rows; 0 if all elements of the row are 0
  std::span<std::uint8_t> classes;   // of rows; all 0 unless has_classes
  std::span<std::uint16_t> columns;  // the column scales as small numbers
  bool has_classes = false;
  std::size_t coded = 0;  // elements of rows with a scale
  entropy::ClassTables tables;
  std::uint64_t value_bits = 0;  // estimated size of all values

  [[nodiscard]] std::uint16_t row_of(std::size_t i) const noexcept {
    return static_cast<std::uint16_t>(base + ((scales[i] - 1U) << row_shift));
  }
  // The bytes before the low bytes and values of a chunk with row_count rows.
  [[nodiscard]] std::size_t scale_bytes(std::size_t row_count) const noexcept;
  [[nodiscard]] std::size_t lane_bytes() const noexcept;
};

// `data` holds elements in the form of `floats`. Precondition: floats.can_be(), whole elements.
[[nodiscard]] Result<FactoredPlan> plan_factored(ConstByteSpan data, const FactoredFloats& floats,
                                                 const FactoredRows& rows, Scratch& scratch);

// The estimated cost of a chunk from some of its rows and columns.
struct FactoredEstimate {
  std::uint64_t payload_bytes = 0;
  bool has_columns = false;
};

[[nodiscard]] Result<FactoredEstimate> estimate_factored(ConstByteSpan data, const FactoredFloats& floats,
                                                         const FactoredRows& rows, Scratch& scratch);

}  // namespace bitsnap::codec
