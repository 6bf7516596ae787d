// What `analyze` found of a state, as tables for people.
#include "cli/analyze_tables.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr auto kWhole = Narrow::never;

// "weight"; with the dtype where several groups have that role.
GroupTitles group_titles(const Analysis& analysis) {
  GroupTitles titles;
  for (const GroupAnalysis& group : analysis.groups) {
    const auto alike = std::ranges::count(analysis.groups, group.role, &GroupAnalysis::role);
    std::string title(role_name(group.role));
    if (alike > 1) {
      title += " " + printable(group.dtype_name);
    }
    titles.push_back(std::move(title));
  }
  return titles;
}

// ---- the state

std::string render_header(const StateReport& report) {
  const Analysis& analysis = report.analysis;
  std::string out = printable(report.state.path);
  out += report.earlier ? fmt::format(", against {}\n", printable(report.earlier->path))
                        : std::string(", with nothing before it\n");
  out +=
      fmt::format("looked at {} of {} ({}){}\n", format_size(analysis.looked_at_bytes),
                  format_size(analysis.analyzed_bytes), format_share(analysis.looked_at_bytes, analysis.analyzed_bytes),
                  analysis.looked_at_bytes < analysis.analyzed_bytes ? "; --full looks at everything" : "");
  return out;
}

std::string render_elements(const StateReport& report, Width width) {
  const bool is_stored = report.stored_bytes.has_value();
  std::vector<Column> columns = {{"role"},
                                 {"dtype"},
                                 {"tensors", Align::right, kWhole, 3},
                                 {"elements", Align::right, kWhole, 1},
                                 {"raw", Align::right, kWhole, 2}};
  if (is_stored) {
    columns.push_back({"stored", Align::right});
    columns.push_back({"ratio", Align::right});
  }
  columns.push_back({"zeros", Align::right});
  columns.push_back({"NaN, inf", Align::right, kWhole, 4});
  if (report.earlier) {
    columns.push_back({"changed", Align::right});
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < report.analysis.groups.size(); ++i) {
    const GroupAnalysis& group = report.analysis.groups[i];
    const Findings& findings = group.findings;
    std::vector<std::string> row = {std::string(role_name(group.role)), printable(group.dtype_name),
                                    format_count(group.tensors), format_count(findings.elements),
                                    format_size(group.raw_bytes)};
    if (is_stored) {
      const auto& stored = report.groups[i];
      row.push_back(stored ? format_size(stored->stored_bytes) : std::string(kNone));
      row.push_back(stored ? format_ratio(stored->raw_bytes, stored->stored_bytes) : std::string(kNone));
    }
    row.push_back(format_percent(findings.zeros));
    row.push_back(is_float(group.dtype) ? format_count(findings.nans + findings.infinities) : std::string(kNone));
    if (report.earlier) {
      row.push_back(findings.change ? format_percent(findings.change->changed) : std::string(kNone));
    }
    table.add_row(std::move(row));
  }
  return table.empty() ? "\nno tensor of 4 KiB or more\n" : '\n' + table.render(width);
}

// ---- bits

// Where a space stands before bit number `bit`: between sign, exponent and mantissa; otherwise between bytes.
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
    if (begins_field(dtype, bit)) {
      text += ' ';
    }
    text += sign(bit);
  }
  return text;
}

std::string render_bits(const StateReport& report, const GroupTitles& titles, Width width) {
  std::vector<Column> columns = {{"role"}};
  if (report.earlier) {
    columns.push_back({"the same as before"});
  }
  columns.push_back({"constant in each tensor", Align::left, kWhole, 1});
  Table table(std::move(columns));
  for (std::size_t i = 0; i < titles.size(); ++i) {
    const GroupAnalysis& group = report.analysis.groups[i];
    const Findings& findings = group.findings;
    std::vector<std::string> row = {titles[i]};
    if (report.earlier) {
      row.push_back(!findings.change ? std::string(kNone)
                                     : bit_string(group.dtype, findings.ones.size(), [&](std::size_t bit) {
                                         const double same = findings.change->same_bits[bit];
                                         return same >= 1 ? '*' : static_cast<char>('0' + std::floor(10 * same));
                                       }));
    }
    row.push_back(bit_string(group.dtype, findings.ones.size(), [&](std::size_t bit) {
      return findings.constant_bits[bit] < 1 ? '.'
             : findings.ones[bit] == 0       ? '0'
             : findings.ones[bit] == 1       ? '1'
                                             : '=';
    }));
    table.add_row(std::move(row));
  }
  return titled(report.earlier ? "bits from the sign down: in how many tenths of elements it is the same, * in all"
                               : "bits from the sign down",
                table, width);
}

// ---- distances

std::string render_distances(const StateReport& report, const GroupTitles& titles, Width width) {
  // Ends of the columns, as indices of ChangeFindings::distances.
  struct Range {
    std::string_view title;
    std::size_t end;
  };
  constexpr Range kRanges[] = {{"0", 1},    {"1", 2},      {"2-3", 3},      {"4-7", 4},
                               {"8-15", 5}, {"16-255", 9}, {"256-64k", 17}, {"more", 65}};
  std::vector<Column> columns = {{"role"}};
  for (const Range& range : kRanges) {
    columns.push_back({std::string(range.title), Align::right});
  }
  columns.push_back({"sign", Align::right});
  Table table(std::move(columns));
  for (std::size_t i = 0; i < titles.size(); ++i) {
    const auto& change = report.analysis.groups[i].findings.change;
    if (!change || change->distances.empty()) {
      continue;
    }
    std::vector<std::string> row = {titles[i]};
    std::size_t at = 0;
    for (const Range& range : kRanges) {
      double share = 0;
      for (; at < std::min(range.end, change->distances.size()); ++at) {
        share += change->distances[at];
      }
      row.push_back(format_percent(share, ""));
    }
    row.push_back(format_percent(change->sign_changed, ""));
    table.add_row(std::move(row));
  }
  return titled("% of elements by distance in representable steps (ULP), and of changed sign", table, width);
}

// ---- entropies

std::string render_entropies(const StateReport& report, const GroupTitles& titles, Width width) {
  std::vector<Column> columns = {
      {"role"}, {"sign", Align::right, kWhole, 2}, {"exponent", Align::right}, {"byte planes", Align::right}};
  if (report.earlier) {
    columns.push_back({"planes of XOR", Align::right, kWhole, 1});
    columns.push_back({"delta", Align::right});
    columns.push_back({"by exp.", Align::right});
  }
  Table table(std::move(columns));
  for (std::size_t i = 0; i < titles.size(); ++i) {
    const Findings& findings = report.analysis.groups[i].findings;
    std::vector<std::string> row = {titles[i], format_bits(findings.sign_entropy),
                                    format_bits(findings.exponent_entropy), format_list(findings.plane_entropies)};
    if (report.earlier) {
      const auto& change = findings.change;
      row.push_back(change ? format_list(change->xor_entropies) : std::string(kNone));
      row.push_back(change ? format_bits(change->delta_entropy) : std::string(kNone));
      row.push_back(change ? format_bits(change->delta_entropy_by_exponent) : std::string(kNone));
    }
    table.add_row(std::move(row));
  }
  return titled("entropy in bits of order 0, planes from the most significant byte on", table, width);
}

}  // namespace

std::string render_analysis(const std::vector<StateReport>& reports, bool with_tensors,
                            std::optional<std::size_t> width) {
  const StateReport& last = reports.back();
  const GroupTitles titles = group_titles(last.analysis);
  std::string out = reports.size() > 1 ? render_steps(reports, width) : "";
  out += render_header(last) + render_elements(last, width);
  if (titles.empty()) {
    return out;
  }
  out += render_bits(last, titles, width);
  out += render_distances(last, titles, width);
  out += render_entropies(last, titles, width);
  out += render_coders(last, titles, width);
  out += render_quantizers(last, titles, width);
  return with_tensors ? out + render_tensors(last, width) : out;
}

}  // namespace bitsnap::cli
