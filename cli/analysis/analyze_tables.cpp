// The tables of `analyze` about the elements of a state: sizes, bits, distances and entropies by role and dtype, and
// one row per tensor.
#include "cli/analysis/analyze_report.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/text_format.hpp"

namespace bitsnap::cli {

std::string format_bits(double bits) { return fmt::format("{:.2f}", bits); }

std::string format_bits(const std::optional<double>& bits) { return bits ? format_bits(*bits) : std::string(kNone); }

std::string format_bits(const std::optional<BestCodec>& best) {
  return best ? format_bits(best->bits) : std::string(kNone);
}

std::string format_error(double error) {
  if (error == 0) return "0";
  const double percent = 100 * error;
  if (percent < 1e-4 || percent >= 1000) return fmt::format("{:.1e}", error);
  const int digits = std::max(0, 1 - static_cast<int>(std::floor(std::log10(percent))));
  return fmt::format("{:.{}f} %", percent, digits);
}

std::string format_list(const std::vector<double>& bits) {
  std::string text;
  for (const double plane : bits) text += fmt::format("{}{:.2f}", text.empty() ? "" : " ", plane);
  return text;
}

std::string titled(std::string_view title, const Table& table, Width width) {
  return table.empty() ? "" : fmt::format("\n{}\n{}", title, table.render(width));
}

namespace {

constexpr auto kWhole = Narrow::never;

// "weight", or "weight BF16" if several groups have that role.
GroupTitles group_titles(const Analysis& analysis) {
  GroupTitles titles;
  for (const GroupAnalysis& group : analysis.groups) {
    const auto alike = std::ranges::count(analysis.groups, group.role, &GroupAnalysis::role);
    std::string title(role_name(group.role));
    if (alike > 1) title += " " + printable(group.dtype_name);
    titles.push_back(std::move(title));
  }
  return titles;
}

// One row of a table: a group, the title of its row, and what it takes in the snapshot.
struct GroupRow {
  std::string title;
  const GroupAnalysis* group;
  const StreamSizes* stored;  // nullptr if the file is no snapshot

  [[nodiscard]] const Findings& findings() const noexcept { return group->findings; }
  // kNone if the group has no earlier state.
  template <typename Format>
  [[nodiscard]] std::string of_change(Format format) const {
    return findings().change ? format(*findings().change) : std::string(kNone);
  }
};
using GroupRows = std::vector<GroupRow>;

GroupRows group_rows(const StateReport& report, const GroupTitles& titles) {
  GroupRows rows;
  for (std::size_t i = 0; i < titles.size(); ++i) {
    rows.push_back({titles[i], &report.analysis.groups[i], report.stored_bytes ? &report.groups[i] : nullptr});
  }
  return rows;
}

// ---- the state

std::string render_header(const StateReport& report) {
  const Analysis& analysis = report.analysis;
  std::string out = printable(report.state.path);
  out += report.earlier ? fmt::format(", against {}\n", printable(report.earlier->path))
                        : std::string(", without an earlier state\n");
  out +=
      fmt::format("sampled {} of {} ({}){}\n", format_size(analysis.looked_at_bytes),
                  format_size(analysis.analyzed_bytes), format_share(analysis.looked_at_bytes, analysis.analyzed_bytes),
                  analysis.looked_at_bytes < analysis.analyzed_bytes ? "; --full reads everything" : "");
  return out;
}

using Fields = std::vector<Field<GroupRow>>;

std::string render_elements(const StateReport& report, const GroupRows& rows, Width width) {
  Fields fields = {
      {{"role"}, [](const GroupRow& row) { return std::string(role_name(row.group->role)); }},
      {{"dtype"}, [](const GroupRow& row) { return printable(row.group->dtype_name); }},
      {{"tensors", Align::right, kWhole, 3}, [](const GroupRow& row) { return format_count(row.group->tensors); }},
      {{"elements", Align::right, kWhole, 1},
       [](const GroupRow& row) { return format_count(row.findings().elements); }},
      {{"raw", Align::right, kWhole, 2}, [](const GroupRow& row) { return format_size(row.group->raw_bytes); }}};
  if (report.stored_bytes) {
    fields.push_back(
        {{"stored", Align::right}, [](const GroupRow& row) { return format_size(row.stored->stored_bytes); }});
    fields.push_back({{"ratio", Align::right}, [](const GroupRow& row) {
                        return format_ratio(row.stored->raw_bytes, row.stored->stored_bytes);
                      }});
  }
  fields.push_back({{"zeros", Align::right}, [](const GroupRow& row) { return format_share(row.findings().zeros); }});
  fields.push_back({{"NaN, inf", Align::right, kWhole, 4}, [](const GroupRow& row) {
                      return is_float(row.group->dtype) ? format_count(row.findings().nans + row.findings().infinities)
                                                        : std::string(kNone);
                    }});
  if (report.earlier) {
    fields.push_back({{"changed", Align::right}, [](const GroupRow& row) {
                        return row.of_change([](const ChangeFindings& change) { return format_share(change.changed); });
                      }});
  }
  return rows.empty() ? "\nno tensor of 4 KiB or more\n" : '\n' + make_table(fields, rows).render(width);
}

// ---- bits

// Whether a space precedes bit number `bit`: between sign, exponent and mantissa; for other dtypes between bytes.
bool begins_field(DType dtype, std::size_t bit) {
  switch (dtype) {
    case DType::bf16:
    case DType::f32: return bit == 1 || bit == 9;
    case DType::f16:
    case DType::f8_e5m2: return bit == 1 || bit == 6;
    case DType::f8_e4m3: return bit == 1 || bit == 5;
    case DType::f64: return bit == 1 || bit == 12;
    default: return bit > 0 && bit % 8 == 0;
  }
}

template <typename Sign>
std::string bit_string(DType dtype, std::size_t bits, Sign sign) {
  std::string text;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    if (begins_field(dtype, bit)) text += ' ';
    text += sign(bit);
  }
  return text;
}

std::string render_bits(const StateReport& report, const GroupRows& rows, Width width) {
  const auto same_bits = [](const GroupRow& row) {
    return row.of_change([&](const ChangeFindings& change) {
      return bit_string(row.group->dtype, change.same_bits.size(), [&](std::size_t bit) {
        const double same = change.same_bits[bit];
        return same >= 1 ? '*' : static_cast<char>('0' + std::floor(10 * same));
      });
    });
  };
  const auto constant_bits = [](const GroupRow& row) {
    const Findings& findings = row.findings();
    return bit_string(row.group->dtype, findings.ones.size(), [&](std::size_t bit) {
      return findings.constant_bits[bit] < 1 ? '.'
             : findings.ones[bit] == 0       ? '0'
             : findings.ones[bit] == 1       ? '1'
                                             : '=';
    });
  };
  Fields fields = {{{"role"}, &GroupRow::title}};
  if (report.earlier) fields.push_back({{"the same as before"}, same_bits});
  fields.push_back({{"constant in each tensor", Align::left, kWhole, 1}, constant_bits});
  return titled(report.earlier ? "bits from the sign down: tenths of elements in which a bit is the same, * all"
                               : "bits from the sign down",
                make_table(fields, rows), width);
}

// ---- distances

std::string render_distances(const GroupRows& rows, Width width) {
  // Ends of the columns, as indices of ChangeFindings::distances.
  struct Range {
    std::string_view title;
    std::size_t end;
  };
  constexpr Range kRanges[] = {{"0", 1},    {"1", 2},      {"2-3", 3},      {"4-7", 4},
                               {"8-15", 5}, {"16-255", 9}, {"256-64k", 17}, {"more", 65}};
  std::vector<Column> columns = {{"role"}};
  for (const Range& range : kRanges) columns.push_back({std::string(range.title), Align::right});
  columns.push_back({"sign", Align::right});
  Table table(std::move(columns));
  for (const GroupRow& group : rows) {
    const auto& change = group.findings().change;
    if (!change || change->distances.empty()) continue;
    std::vector<std::string> row = {group.title};
    std::size_t at = 0;
    for (const Range& range : kRanges) {
      double share = 0;
      for (; at < std::min(range.end, change->distances.size()); ++at) share += change->distances[at];
      row.push_back(format_share(share, ""));
    }
    row.push_back(format_share(change->sign_changed, ""));
    table.add_row(std::move(row));
  }
  return titled("% of elements by ULP distance (in representable values), and with changed sign", table, width);
}

// ---- entropies

std::string render_entropies(const StateReport& report, const GroupRows& rows, Width width) {
  Fields fields = {
      {{"role"}, &GroupRow::title},
      {{"sign", Align::right, kWhole, 2}, [](const GroupRow& row) { return format_bits(row.findings().sign_entropy); }},
      {{"exponent", Align::right}, [](const GroupRow& row) { return format_bits(row.findings().exponent_entropy); }},
      {{"byte planes", Align::right}, [](const GroupRow& row) { return format_list(row.findings().plane_entropies); }}};
  if (report.earlier) {
    const auto add = [&](Column column, auto format) {
      fields.push_back({std::move(column), [format](const GroupRow& row) { return row.of_change(format); }});
    };
    add({"planes of XOR", Align::right, kWhole, 1},
        [](const ChangeFindings& change) { return format_list(change.xor_entropies); });
    add({"delta", Align::right}, [](const ChangeFindings& change) { return format_bits(change.delta_entropy); });
    add({"by exp.", Align::right},
        [](const ChangeFindings& change) { return format_bits(change.delta_entropy_by_exponent); });
  }
  return titled("order-0 entropy in bits, planes from the most significant byte on", make_table(fields, rows), width);
}

// ---- tensors

constexpr std::size_t kWideTerminal = 120;

std::string render_tensors(const StateReport& report, Width width) {
  using Row = const TensorAnalysis*;
  const auto info = [&](Row row) -> const TensorInfo& { return report.tensors[row->tensor]; };
  std::vector<Field<Row>> fields = {
      {{"tensor", Align::left, Narrow::middle}, [&](const Row& row) { return printable(info(row).name); }}};
  // On a narrow terminal names need the room most.
  if (!width || *width >= kWideTerminal) {
    fields.push_back({{"dtype"}, [&](const Row& row) { return printable(info(row).dtype_name); }});
    fields.push_back({{"elements", Align::right}, [](const Row& row) { return format_count(row->findings.elements); }});
    fields.push_back({{"zeros", Align::right}, [](const Row& row) { return format_share(row->findings.zeros); }});
    fields.push_back(
        {{"exponent", Align::right}, [](const Row& row) { return format_bits(row->findings.exponent_entropy); }});
  }
  if (report.earlier) {
    fields.push_back({{"changed", Align::right}, [](const Row& row) {
                        const auto& change = row->findings.change;
                        return change ? format_share(change->changed) : std::string(kNone);
                      }});
    fields.push_back({{"by exp.", Align::right, Narrow::never, 1}, [](const Row& row) {
                        const auto& change = row->findings.change;
                        return change ? format_bits(change->delta_entropy_by_exponent) : std::string(kNone);
                      }});
  }
  fields.push_back({{"alone", Align::right}, [](const Row& row) { return format_bits(row->findings.best_alone); }});
  if (report.earlier) {
    fields.push_back(
        {{"with base", Align::right}, [](const Row& row) { return format_bits(row->findings.best_on_base); }});
  }
  fields.push_back({{"codec", Align::left, Narrow::end, 2}, [](const Row& row) {
                      const auto& best =
                          row->findings.best_on_base ? row->findings.best_on_base : row->findings.best_alone;
                      return best ? best->codec : std::string(kNone);
                    }});
  std::vector<Row> rows;
  for (const TensorAnalysis& tensor : report.analysis.tensors) {
    if (tensor.kind == TensorAnalysis::Kind::analyzed) rows.push_back(&tensor);
  }
  return titled("tensors of 4 KiB or more: bits per element, and the codec with the fewest", make_table(fields, rows),
                width);
}

}  // namespace

std::string render_analysis(const std::vector<StateReport>& reports, bool with_tensors,
                            std::optional<std::size_t> width) {
  const StateReport& last = reports.back();
  const GroupTitles titles = group_titles(last.analysis);
  const GroupRows rows = group_rows(last, titles);
  std::string out = reports.size() > 1 ? render_steps(reports, width) : "";
  out += render_header(last) + render_elements(last, rows, width);
  if (rows.empty()) return out;
  out += render_bits(last, rows, width);
  out += render_distances(rows, width);
  out += render_entropies(last, rows, width);
  out += render_coders(last, titles, width);
  out += render_quantizers(last, titles, width);
  return with_tensors ? out + render_tensors(last, width) : out;
}

}  // namespace bitsnap::cli
