// A table of text whose columns are as wide as their cells. To fit a terminal, cells lose text first, then columns are
// dropped, because lines that wrap make the whole table unreadable.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bitsnap::cli {

enum class Align { left, right };

// Which part of a cell is cut if the table is wider than the terminal.
enum class Narrow { never, end, middle };

struct Column {
  std::string title;
  Align align = Align::left;
  Narrow narrow = Narrow::never;  // columns with Narrow::end are cut first
  unsigned spare = 0;             // if that is not enough, columns with the highest number are dropped first; 0: never
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Draws a line across the table.
  void add_rule() { rows_.emplace_back(); }

  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

  // All lines, with line ends. No line is wider than `width` unless all remaining columns must stay whole.
  [[nodiscard]] std::string render(std::optional<std::size_t> width) const;

 private:
  [[nodiscard]] std::vector<std::size_t> full_widths() const;
  // Reduces the widths of the shown columns; returns whether they fit in `limit`.
  [[nodiscard]] bool narrow(const std::vector<std::size_t>& shown, std::size_t limit,
                            std::vector<std::size_t>& widths) const;
  [[nodiscard]] std::optional<std::size_t> most_sparable(const std::vector<std::size_t>& shown) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a line across the table
};

// A column together with the text of its cells, for tables whose columns depend on what there is to show.
template <typename Row>
struct Field {
  Column column;
  std::function<std::string(const Row&)> cell;
};

template <typename Row>
[[nodiscard]] Table make_table(const std::vector<Field<Row>>& fields, const std::vector<Row>& rows) {
  std::vector<Column> columns;
  for (const Field<Row>& field : fields) columns.push_back(field.column);
  Table table(std::move(columns));
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Field<Row>& field : fields) cells.push_back(field.cell(row));
    table.add_row(std::move(cells));
  }
  return table;
}

}  // namespace bitsnap::cli
