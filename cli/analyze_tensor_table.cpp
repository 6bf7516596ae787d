// The table of `analyze` with one row per tensor.
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
  using Row = const TensorAnalysis*;
  const auto info = [&](Row row) -> const TensorInfo& { return report.tensors[row->tensor]; };
  std::vector<Field<Row>> fields = {
      {{"tensor", Align::left, Narrow::middle}, [&](const Row& row) { return printable(info(row).name); }}};
  // On a narrow terminal names need the room most.
  if (!width || *width >= kWideTerminal) {
    fields.push_back({{"dtype"}, [&](const Row& row) { return printable(info(row).dtype_name); }});
    fields.push_back({{"elements", Align::right}, [](const Row& row) { return format_count(row->findings.elements); }});
    fields.push_back({{"zeros", Align::right}, [](const Row& row) { return format_percent(row->findings.zeros); }});
    fields.push_back(
        {{"exponent", Align::right}, [](const Row& row) { return format_bits(row->findings.exponent_entropy); }});
  }
  if (report.earlier) {
    fields.push_back({{"changed", Align::right}, [](const Row& row) {
                        const auto& change = row->findings.change;
                        return change ? format_percent(change->changed) : std::string(kNone);
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
    if (tensor.kind == TensorAnalysis::Kind::analyzed) {
      rows.push_back(&tensor);
    }
  }
  return titled("tensors of 4 KiB or more: bits per element, and the codec with the fewest", make_table(fields, rows),
                width);
}

}  // namespace bitsnap::cli
