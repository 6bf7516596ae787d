// A table of text.
#include "cli/output/table.hpp"

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

std::vector<std::size_t> Table::full_widths() const {
  std::vector<std::size_t> widths(columns_.size());
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widths[i] = display_width(columns_[i].title);
    for (const auto& row : rows_) {
      if (!row.empty()) widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  return widths;
}

bool Table::narrow(const std::vector<std::size_t>& shown, std::size_t limit, std::vector<std::size_t>& widths) const {
  std::size_t total = (shown.size() - 1) * kGap;
  for (const std::size_t i : shown) total += widths[i];
  for (const Narrow way : {Narrow::end, Narrow::middle}) {
    for (const std::size_t i : shown) {
      if (total > limit && columns_[i].narrow == way && widths[i] > kNarrowest) {
        const std::size_t given = std::min(total - limit, widths[i] - kNarrowest);
        widths[i] -= given;
        total -= given;
      }
    }
  }
  return total <= limit;
}

std::optional<std::size_t> Table::most_sparable(const std::vector<std::size_t>& shown) const {
  std::optional<std::size_t> found;
  for (const std::size_t i : shown) {
    if (columns_[i].spare > (found ? columns_[*found].spare : 0)) found = i;
  }
  return found;
}

std::string Table::render(std::optional<std::size_t> width) const {
  std::vector<std::size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  const std::vector<std::size_t> full = full_widths();
  std::vector<std::size_t> widths = full;
  if (width && !columns_.empty()) {
    while (!narrow(shown, *width, widths)) {
      const auto spared = most_sparable(shown);
      if (!spared) break;
      std::erase(shown, *spared);
      widths = full;
    }
  }
  std::string out;
  const auto add_line = [&](const auto& cell) {
    const std::size_t start = out.size();
    for (const std::size_t i : shown) {
      out.append(i == shown.front() ? 0 : kGap, ' ');
      append_cell(out, cell(i), columns_[i], widths[i]);
    }
    while (out.size() > start && out.back() == ' ') out.pop_back();
    out += '\n';
  };
  add_line([&](std::size_t i) -> std::string_view { return columns_[i].title; });
  for (const auto& row : rows_) {
    if (row.empty()) {
      add_line([&](std::size_t i) { return std::string(widths[i], '-'); });
    } else {
      add_line([&](std::size_t i) -> std::string_view { return row[i]; });
    }
  }
  return out;
}

}  // namespace bitsnap::cli
