// A table of text: columns as wide as their cells, narrowed to a terminal where that is asked for. First cells lose
// text, then columns go: a line that wraps makes all of them unreadable.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace bitsnap::cli {

enum class Align { left, right };

// What gives way when the table is wider than the terminal.
enum class Narrow { never, end, middle };

struct Column {
  std::string title;
  Align align = Align::left;
  Narrow narrow = Narrow::never;  // columns that may lose their end give way first
  unsigned spare = 0;             // where that is not enough, the columns that can best be spared go; 0: never
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as there are columns.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // A line across the table.
  void add_rule() { rows_.emplace_back(); }

  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

  // Lines with their ends; no line is wider than `width` as long as there are columns that may give way or go.
  [[nodiscard]] std::string render(std::optional<std::size_t> width) const;

 private:
  // As wide as their cells.
  [[nodiscard]] std::vector<std::size_t> full_widths() const;
  // Takes from the widths of the columns that are shown; whether they are within `limit` then.
  [[nodiscard]] bool narrow(const std::vector<std::size_t>& shown, std::size_t limit,
                            std::vector<std::size_t>& widths) const;
  [[nodiscard]] std::optional<std::size_t> most_sparable(const std::vector<std::size_t>& shown) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace bitsnap::cli
