// How a chunk is going to be coded by factored_split: the scales of its rows and columns, and the tables. Integers
// only, so that the same chunk gives the same plan everywhere.
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

// Rows as they are taken. Where a tensor's own are not known, or too short or too long to be of use, pieces of it serve
// as rows, and there are no columns.
struct FactoredRows {
  std::size_t row_elements = 0;
  std::size_t first_column = 0;
  bool has_columns = false;
  std::size_t whole_rows = 0;  // of the chunk, which a column has its scale for
};

[[nodiscard]] FactoredRows rows_to_factor(const RowPlace& place, std::size_t elements) noexcept;

// The same where only the elements can tell. What looked like rows may not be worth its columns.
[[nodiscard]] Result<FactoredRows> rows_by_period(ConstByteSpan data, const FactoredFloats& floats, Scratch& scratch);

// Its arrays are in the scratch.
struct FactoredPlan {
  FactoredGeometry geometry;
  unsigned row_shift = 0;
  unsigned column_shift = 0;
  unsigned column_bits = 0;  // 0: no columns
  std::uint16_t base = 0;
  FactoredRows rows;
  std::span<std::uint8_t> scales;    // of rows; 0 where a row has nothing but elements that are 0
  std::span<std::uint8_t> classes;   // of rows; all 0 where has_classes is not set
  std::span<std::uint16_t> columns;  // whole columns' scales, as small numbers
  bool has_classes = false;
  std::size_t coded = 0;  // elements of rows that are not left out
  entropy::ClassTables tables;
  std::uint64_t value_bits = 0;  // that values will take, estimated

  [[nodiscard]] std::uint16_t row_of(std::size_t i) const noexcept {
    return static_cast<std::uint16_t>(base + ((scales[i] - 1U) << row_shift));
  }
  // Before low bytes and values of a chunk of so many rows; and of these what is the coder's.
  [[nodiscard]] std::size_t scale_bytes(std::size_t row_count) const noexcept;
  [[nodiscard]] std::size_t lane_bytes() const noexcept;
};

// `data` holds elements as the floats say, shortened or not. Precondition: floats.can_be(), whole elements.
[[nodiscard]] Result<FactoredPlan> plan_factored(ConstByteSpan data, const FactoredFloats& floats,
                                                 const FactoredRows& rows, Scratch& scratch);

// What coding the chunk will cost, from a few of its rows and columns.
struct FactoredEstimate {
  std::uint64_t payload_bytes = 0;
  bool has_columns = false;
};

[[nodiscard]] Result<FactoredEstimate> estimate_factored(ConstByteSpan data, const FactoredFloats& floats,
                                                         const FactoredRows& rows, Scratch& scratch);

}  // namespace bitsnap::codec
