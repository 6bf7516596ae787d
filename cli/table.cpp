// A table of text.
#include "cli/table.hpp"

#include <algorithm>
#include <numeric>

#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 12;  // what a column that gives way keeps

// Tables may have tens of thousands of cells: nothing is copied that need not be.
void append_cell(std::string& out, std::string_view text, const Column& column, std::size_t width) {
  std::string shortened;
  if (display_width(text) > width) {
    shortened = column.narrow == Narrow::middle ? elide_middle(text, width) : elide_end(text, width);
    text = shortened;
  }
  const std::size_t taken = display_width(text);
  const std::size_t padding = width > taken ? width - taken : 0;
  if (column.align == Align::right) {
    out.append(padding, ' ').append(text);
  } else {
    out.append(text).append(padding, ' ');
  }
}

}  // namespace

std::vector<std::size_t> Table::widths(std::optional<std::size_t> limit) const {
  std::vector<std::size_t> widths(columns_.size());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths[i] = display_width(columns_[i].title);
    for (const auto& row : rows_) {
      if (!row.empty()) {
        widths[i] = std::max(widths[i], display_width(row[i]));
      }
    }
  }
  if (!limit || columns_.empty()) {
    return widths;
  }
  std::size_t total = std::accumulate(widths.begin(), widths.end(), (columns_.size() - 1) * kGap);
  for (const Narrow way : {Narrow::end, Narrow::middle}) {
    for (std::size_t i = 0; i < columns_.size() && total > *limit; ++i) {
      if (columns_[i].narrow == way && widths[i] > kNarrowest) {
        const std::size_t given = std::min(total - *limit, widths[i] - kNarrowest);
        widths[i] -= given;
        total -= given;
      }
    }
  }
  return widths;
}

std::string Table::render(std::optional<std::size_t> width) const {
  const std::vector<std::size_t> columns = widths(width);
  std::string out;
  const auto add_line = [&](const auto& cell) {
    const std::size_t start = out.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      out.append(i == 0 ? 0 : kGap, ' ');
      append_cell(out, cell(i), columns_[i], columns[i]);
    }
    while (out.size() > start && out.back() == ' ') {
      out.pop_back();
    }
    out += '\n';
  };
  add_line([&](std::size_t i) -> std::string_view { return columns_[i].title; });
  for (const auto& row : rows_) {
    if (row.empty()) {
      add_line([&](std::size_t i) { return std::string(columns[i], '-'); });
    } else {
      add_line([&](std::size_t i) -> std::string_view { return row[i]; });
    }
  }
  return out;
}

}  // namespace bitsnap::cli
