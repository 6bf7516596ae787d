// A scale is the mean of the elements' bits as integers, whose upper bits order like logarithms: of a row, or of a
// column after the row scales are removed. One pass over the chunk sums both.
#include "codec/factored_split/factored_scales_encode.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/cpu_dispatch.hpp"
#include "codec/factored_split/factored_sample_encode.hpp"
#include "codec/factored_split/factored_tables_encode.hpp"
#include "entropy/rans_table_encode.hpp"

namespace bitsnap::codec {
namespace {

// Row scales are in eighths of an octave, so a byte covers 31 octaves. Column scales, too, or in halves of an octave if
// columns have so few elements that a byte costs more than it saves (measured in
// docs/decisions/0009-factored-scales.md).
constexpr unsigned kRowUnit = 3;
constexpr unsigned kSmallColumnUnit = 1;
constexpr std::size_t kRowsForByte = 48;
constexpr std::int32_t kMostRowScale = 254;

// The length of pieces that replace rows if the tensor's rows are unusable (measured in
// docs/decisions/0009-factored-scales.md).
constexpr std::size_t kPieceElements = 512;
constexpr std::size_t kFewestRows = 8;

// Chunks with fewer rows have one class.
constexpr std::size_t kFewestRowsForClasses = 16;

// Tables are chosen from runs of one to a few cache lines.
constexpr std::size_t kLeftRuns = 64;
constexpr std::size_t kLeftRunElements = 128;

std::int64_t divide_rounded(std::int64_t a, std::int64_t b) noexcept {
  return a >= 0 ? (a + b / 2) / b : -((-a + b / 2) / b);
}

// The sums of one row.
struct RowSum {
  std::int32_t mean = 0;     // distance
  std::uint32_t spread = 0;  // variance
  std::uint32_t count = 0;   // 0: all elements are 0
  std::uint32_t first = 0;   // column
};

struct Sums {
  std::span<RowSum> rows;
  std::span<std::int32_t> columns;  // of whole rows; later the columns' means
  std::int64_t mean_total = 0;      // of whole rows
  std::size_t whole = 0;            // rows with a scale
};

class Planner {
 public:
  Planner(ConstByteSpan data, const FactoredFloats& floats, const FactoredRows& rows, Scratch& scratch) noexcept
      : data_(data), floats_(floats), elements_(data.size() / floats.element_bytes()), scratch_(scratch) {
    plan_.rows = rows;
  }

  Result<FactoredPlan> run() {
    const std::size_t rows = factored_rows(elements_, plan_.rows.row_elements, plan_.rows.first_column);
    BITSNAP_ASSIGN(plan_.scales, scratch_.take_array<std::uint8_t>(rows));
    BITSNAP_ASSIGN(plan_.classes, scratch_.take_array<std::uint8_t>(rows));
    BITSNAP_ASSIGN(plan_.columns, scratch_.take_array<std::uint16_t>(plan_.rows.row_elements));
    const Scratch::Frame frame(scratch_);
    BITSNAP_ASSIGN(sums_.rows, scratch_.take_array<RowSum>(rows));
    BITSNAP_ASSIGN(sums_.columns, scratch_.take_array<std::int32_t>(plan_.rows.row_elements));
    const FactoredNature nature = find_nature(data_, floats_);
    plan_.geometry = nature.geometry;
    plan_.row_shift = nature.octave_bits - kRowUnit;
    range_ = nature.range;
    sum_up();
    take_columns();
    for (std::size_t i = 0; i < rows; ++i) row_scale(i) = scale_of(sums_.rows[i]);
    BITSNAP_TRY(choose_tables());
    return plan_;
  }

 private:
  // The scale replaces the mean once the columns are known.
  std::int32_t& row_scale(std::size_t i) noexcept { return sums_.rows[i].mean; }

  void sum_up() noexcept {
    const auto sum_row = kernels<FactoredRowKernels>().sum_row;
    std::ranges::fill(sums_.columns, 0);
    const std::size_t row_elements = plan_.rows.row_elements;
    std::size_t column = plan_.rows.first_column;
    std::size_t position = 0;
    for (RowSum& row : sums_.rows) {
      const std::size_t count = std::min(row_elements - column, elements_ - position);
      const bool whole = plan_.rows.has_columns && count == row_elements;
      RowSums sums;
      for (std::size_t i = 0; i < count; i += kMostSummed) {
        sum_row(as_u8(data_) + (position + i) * plan_.geometry.element_bytes, std::min(kMostSummed, count - i),
                plan_.geometry, range_, whole ? sums_.columns.data() + i : nullptr, sums);
      }
      const auto size = static_cast<std::int64_t>(count);
      row.mean = static_cast<std::int32_t>(divide_rounded(sums.sum, size));
      row.spread = static_cast<std::uint32_t>((static_cast<std::int64_t>(sums.squares) * size - sums.sum * sums.sum) /
                                              (size * size));
      row.first = static_cast<std::uint32_t>(column);
      row.count = sums.bits != 0 ? static_cast<std::uint32_t>(count) : 0;
      if (row.count > 0) plan_.coded += count;
      if (whole) {
        sums_.mean_total += row.mean;
        if (row.count > 0) ++sums_.whole;
      }
      position += count;
      column = 0;
    }
  }

  // Computes the columns' means. Columns are used if the variance that they explain saves more than their bytes.
  void take_columns() noexcept {
    std::ranges::fill(plan_.columns, std::uint16_t{0});
    if (!plan_.rows.has_columns || sums_.whole < kFewestRows) return;
    const auto whole = static_cast<std::int64_t>(sums_.whole);
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    std::int32_t most = std::numeric_limits<std::int32_t>::min();
    std::int64_t squares = 0;
    for (std::int32_t& column : sums_.columns) {
      column = static_cast<std::int32_t>(divide_rounded(column - sums_.mean_total, whole));
      least = std::min(least, column);
      most = std::max(most, column);
      squares += std::int64_t{column} * column;
    }
    std::uint64_t spread = 0;
    for (const RowSum& row : sums_.rows) spread += std::uint64_t{row.spread} * row.count;
    const bool small = plan_.rows.whole_rows < kRowsForByte;
    const unsigned bits = small ? 4 : 8;
    if (!pays(spread / std::max<std::size_t>(plan_.coded, 1),
              static_cast<std::uint64_t>(squares) / sums_.columns.size(), bits)) {
      std::ranges::fill(sums_.columns, 0);
      return;
    }
    plan_.column_bits = bits;
    const unsigned unit = small ? kSmallColumnUnit : kRowUnit;
    plan_.column_shift = plan_.row_shift + kRowUnit - unit;
    const unsigned unit_shift = kUnitsOfOctave - unit;
    const std::int32_t last = (1 << bits) - 1;
    // Columns out of reach are mostly nearly unused ones, far below.
    if ((most - least) >> unit_shift > last) least = -(((last + 1) << unit_shift) / 2);
    first_column_ = least;
    for (std::size_t i = 0; i < sums_.columns.size(); ++i) {
      const std::int32_t scale = (sums_.columns[i] - least + (1 << unit_shift >> 1)) >> unit_shift;
      plan_.columns[i] = static_cast<std::uint16_t>(std::clamp(scale, 0, last));
    }
  }

  // The saving is half the logarithm of the variance's reduction; the cost is a column's bits divided by its rows.
  [[nodiscard]] bool pays(std::uint64_t spread, std::uint64_t explained, unsigned bits) const noexcept {
    explained = std::min(explained, spread);
    const std::uint64_t saved = entropy::rans_logarithm(static_cast<std::uint32_t>(spread + 1)) -
                                entropy::rans_logarithm(static_cast<std::uint32_t>(spread - explained + 1));
    return saved * plan_.rows.whole_rows > (std::uint64_t{2 * bits} << entropy::kCostBits);
  }

  // In eighths of an octave above the number 0.
  [[nodiscard]] std::int32_t scale_of(const RowSum& row) const noexcept {
    std::int64_t columns = 0;
    if (plan_.column_bits > 0 && row.count < plan_.rows.row_elements && row.count > 0) {
      for (std::size_t i = row.first; i < row.first + row.count; ++i) columns += sums_.columns[i];
      columns = divide_rounded(columns, row.count);
    }
    const std::int64_t units =
        (std::int64_t{range_.middle} << range_.finer >> range_.unit) + row.mean - columns + first_column_;
    return static_cast<std::int32_t>((units + (1 << (kUnitsOfOctave - kRowUnit) >> 1)) >> (kUnitsOfOctave - kRowUnit));
  }

  // Sorts rows into quarters by the spread of their elements.
  Result<void> choose_classes() {
    std::ranges::fill(plan_.classes, std::uint8_t{0});
    BITSNAP_ASSIGN(const std::span<std::uint32_t> spreads, scratch_.take_array<std::uint32_t>(sums_.rows.size()));
    std::size_t size = 0;
    for (const RowSum& row : sums_.rows) {
      if (row.count > 0) spreads[size++] = row.spread;
    }
    if (size < kFewestRowsForClasses) return {};
    std::array<std::uint32_t, entropy::kMaxClasses - 1> limits;
    for (std::size_t i = 0; i < limits.size(); ++i) {
      const std::size_t place = (i + 1) * size / entropy::kMaxClasses;
      std::nth_element(spreads.begin(), spreads.begin() + static_cast<std::ptrdiff_t>(place),
                       spreads.begin() + static_cast<std::ptrdiff_t>(size));
      limits[i] = spreads[place];
    }
    for (std::size_t i = 0; i < sums_.rows.size(); ++i) {
      std::uint8_t own = 0;
      for (const std::uint32_t limit : limits) {
        if (sums_.rows[i].spread >= limit) ++own;
      }
      plan_.classes[i] = own;
    }
    return {};
  }

  using Counted = std::array<LeftCounts, entropy::kMaxClasses>;

  // Counts a sample's values by class.
  Result<void> count_sample(Counted& counted) {
    BITSNAP_ASSIGN(const std::span<std::uint32_t> coded_rows, scratch_.take_array<std::uint32_t>(sums_.rows.size()));
    std::size_t size = 0;
    for (std::size_t i = 0; i < sums_.rows.size(); ++i) {
      if (sums_.rows[i].count > 0) coded_rows[size++] = static_cast<std::uint32_t>(i);
    }
    BITSNAP_ASSIGN(const std::span<std::uint16_t> columns, scratch_.take_array<std::uint16_t>(plan_.columns.size()));
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i] = static_cast<std::uint16_t>(plan_.columns[i] << plan_.column_shift);
    }
    const auto take_off = kernels<FactoredRowKernels>().take_off_scales;
    std::array<std::uint16_t, kLeftRunElements> values;
    std::array<std::uint8_t, kLeftRunElements * 2> low;
    const std::uint16_t half = static_cast<std::uint16_t>(kLeftBins / 2 << plan_.row_shift);
    for (std::size_t run = 0; run < kLeftRuns; ++run) {
      const std::size_t number = coded_rows[run * size / kLeftRuns];
      const RowSum& row = sums_.rows[number];
      const std::size_t count = std::min<std::size_t>(kLeftRunElements, row.count);
      // A different column in each row: multiples of the golden ratio (16 fractional bits) spread evenly.
      const std::size_t column = row.first + ((row.count - count) * (run * 40503 & 0xffff) >> 16);
      const std::size_t position = number * plan_.rows.row_elements + column - plan_.rows.first_column;
      const auto scale = static_cast<std::uint16_t>(row_scale(number) << plan_.row_shift);
      take_off(as_u8(data_) + position * plan_.geometry.element_bytes, count, plan_.geometry,
               static_cast<std::uint16_t>(scale - half), columns.data() + column, values.data(), low.data());
      LeftCounts& own = counted[plan_.classes[number]];
      own.total += static_cast<std::uint32_t>(count);
      for (std::size_t i = 0; i < count; ++i) {
        const unsigned bin = static_cast<unsigned>(values[i]) >> plan_.row_shift;
        if (bin < kLeftBins) ++own.bins[bin];
      }
    }
    return {};
  }

  Result<void> choose_tables() {
    if (plan_.coded == 0) {
      std::ranges::fill(plan_.scales, std::uint8_t{0});
      return {};
    }
    const Scratch::Frame frame(scratch_);
    BITSNAP_TRY(choose_classes());
    Counted counted{};
    BITSNAP_TRY(count_sample(counted));
    LeftCounts all;
    for (const LeftCounts& each : counted) all.add(each);
    std::array<SymbolWindow, entropy::kMaxClasses> windows;
    windows.fill(choose_window(all, plan_.row_shift));
    std::uint64_t cost = windows[0].cost;
    // Two bits for each row, and a table for each class but one, scaled to the sample.
    const std::uint64_t class_bits = 2 * sums_.rows.size() + 3 * 8 * entropy::kClassSymbols;
    std::array<SymbolWindow, entropy::kMaxClasses> own;
    std::uint64_t own_cost = (class_bits << entropy::kCostBits) * all.total / plan_.coded;
    for (std::size_t i = 0; i < own.size(); ++i) {
      own[i] = counted[i].total > 0 ? choose_window(counted[i], plan_.row_shift) : windows[0];
      own_cost += counted[i].total > 0 ? own[i].cost : 0;
    }
    plan_.has_classes = own_cost < cost;
    if (plan_.has_classes) {
      windows = own;
      cost = own_cost;
    } else {
      std::ranges::fill(plan_.classes, std::uint8_t{0});
    }
    plan_.value_bits = (cost >> entropy::kCostBits) * plan_.coded / all.total;
    take_windows(windows);
    return {};
  }

  // Turns windows into tables, and shifts the scales so that a window begins at its row's scale.
  void take_windows(const std::array<SymbolWindow, entropy::kMaxClasses>& windows) noexcept {
    plan_.tables.classes = plan_.has_classes ? entropy::kMaxClasses : 1;
    plan_.tables.plans.fill(0);
    for (std::size_t i = 0; i < plan_.tables.classes; ++i) {
      plan_.tables.plans[i] =
          static_cast<std::uint8_t>(i * entropy::kPlanClassUnit + plan_.row_shift + windows[i].bins_shift);
      plan_.tables.frequencies[i] = windows[i].frequencies;
    }
    constexpr auto kHalf = static_cast<std::int32_t>(kLeftBins / 2);
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    for (std::size_t i = 0; i < sums_.rows.size(); ++i) {
      row_scale(i) += static_cast<std::int32_t>(windows[plan_.classes[i]].first_bin) - kHalf;
      if (sums_.rows[i].count > 0) least = std::min(least, row_scale(i));
    }
    plan_.base = static_cast<std::uint16_t>(least << plan_.row_shift);
    for (std::size_t i = 0; i < sums_.rows.size(); ++i) {
      const bool left_out = sums_.rows[i].count == 0;
      plan_.scales[i] = static_cast<std::uint8_t>(left_out ? 0 : 1 + std::min(row_scale(i) - least, kMostRowScale));
    }
  }

  ConstByteSpan data_;
  FactoredFloats floats_;
  std::size_t elements_;
  Scratch& scratch_;
  FactoredRange range_;
  Sums sums_;
  std::int32_t first_column_ = 0;  // distance of the column scale 0
  FactoredPlan plan_;
};

}  // namespace

FactoredRows rows_to_factor(const RowPlace& place, std::size_t elements) noexcept {
  if (place.row_elements >= kFewestRowElements && place.first_column < place.row_elements) {
    const std::size_t to_next = (place.row_elements - place.first_column) % place.row_elements;
    const std::size_t whole = elements > to_next ? (elements - to_next) / place.row_elements : 0;
    if (whole >= kFewestRows) {
      return {.row_elements = place.row_elements,
              .first_column = place.first_column,
              .has_columns = true,
              .whole_rows = whole};
    }
  }
  return {.row_elements = kPieceElements, .first_column = 0, .has_columns = false, .whole_rows = 0};
}

Result<FactoredRows> rows_by_period(ConstByteSpan data, const FactoredFloats& floats, Scratch& scratch) {
  BITSNAP_ASSIGN(const std::size_t period, find_row_elements(data, find_nature(data, floats), scratch));
  return rows_to_factor({.row_elements = period, .first_column = 0}, data.size() / floats.element_bytes());
}

std::size_t FactoredPlan::scale_bytes(std::size_t row_count) const noexcept {
  return kFactoredHeaderBytes + row_count + (has_classes ? divide_up<std::size_t>(row_count, 4) : 0) +
         divide_up<std::size_t>(rows.row_elements * column_bits, 8);
}

std::size_t FactoredPlan::lane_bytes() const noexcept {
  return entropy::class_tables_size(tables.classes) + (entropy::kRansGroups + 3) * sizeof(std::uint32_t) +
         entropy::kRansStateBytes;
}

Result<FactoredPlan> plan_factored(ConstByteSpan data, const FactoredFloats& floats, const FactoredRows& rows,
                                   Scratch& scratch) {
  return Planner(data, floats, rows, scratch).run();
}

}  // namespace bitsnap::codec
