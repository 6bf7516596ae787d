// Each tensor of a state.
#include "cli/analyze_tables.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::size_t kWideTerminal = 120;

}  // namespace

std::string render_tensors(const StateReport& report, Width width) {
  // On a narrow terminal names need the room most.
  const bool is_wide = !width || *width >= kWideTerminal;
  std::vector<Column> columns = {{"tensor", Align::left, Narrow::middle}};
  if (is_wide) {
    columns.push_back({"dtype"});
    columns.push_back({"elements", Align::right});
    columns.push_back({"zeros", Align::right});
    columns.push_back({"exponent", Align::right});
  }
  if (report.earlier) {
    columns.push_back({"changed", Align::right});
    columns.push_back({"by exp.", Align::right, Narrow::never, 1});
  }
  columns.push_back({"alone", Align::right});
  if (report.earlier) {
    columns.push_back({"with base", Align::right});
  }
  columns.push_back({"codec", Align::left, Narrow::end, 2});
  Table table(std::move(columns));
  for (const TensorAnalysis& tensor : report.analysis.tensors) {
    if (tensor.kind != TensorAnalysis::Kind::analyzed) {
      continue;
    }
    const TensorInfo& info = report.tensors[tensor.tensor];
    const Findings& findings = tensor.findings;
    std::vector<std::string> row = {printable(info.name)};
    if (is_wide) {
      row.push_back(printable(info.dtype_name));
      row.push_back(format_count(findings.elements));
      row.push_back(format_percent(findings.zeros));
      row.push_back(format_bits(findings.exponent_entropy));
    }
    if (report.earlier) {
      const auto& change = findings.change;
      row.push_back(change ? format_percent(change->changed) : std::string(kNone));
      row.push_back(change ? format_bits(change->delta_entropy_by_exponent) : std::string(kNone));
    }
    row.push_back(format_bits(findings.best_alone));
    if (report.earlier) {
      row.push_back(format_bits(findings.best_on_base));
    }
    const auto& best = findings.best_on_base ? findings.best_on_base : findings.best_alone;
    row.push_back(best ? best->codec : std::string(kNone));
    table.add_row(std::move(row));
  }
  return titled("tensors from 4 KiB on, bits per element, and the codec that makes least of each", table, width);
}

}  // namespace bitsnap::cli
