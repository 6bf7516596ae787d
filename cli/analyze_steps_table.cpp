// The table of `analyze` that shows how each role changes from state to state.
#include "cli/analyze_tables.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

// Share of elements with a ULP distance of at most 1.
double near_share(const ChangeFindings& change) {
  double share = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, change.distances.size()); ++i) {
    share += change.distances[i];
  }
  return share;
}

}  // namespace

std::string render_steps(const std::vector<StateReport>& reports, Width width) {
  const bool is_run =
      std::ranges::all_of(reports, [](const StateReport& report) { return report.state.run.has_value(); });
  const bool is_stored =
      std::ranges::any_of(reports, [](const StateReport& report) { return report.stored_bytes.has_value(); });
  std::vector<Column> columns = {
      {"role"},
      {is_run ? "step" : "file", is_run ? Align::right : Align::left, is_run ? Narrow::never : Narrow::middle},
      {"changed", Align::right},
      {"<= 1 ULP", Align::right, Narrow::never, 3},
      {"exponent", Align::right, Narrow::never, 2},
      {"delta", Align::right, Narrow::never, 4},
      {"by exp.", Align::right, Narrow::never, 1},
      {"alone", Align::right},
      {"with base", Align::right}};
  if (is_stored) {
    columns.push_back({"stored", Align::right});
  }
  Table table(std::move(columns));
  // All groups, in the order in which the states have them.
  std::vector<std::pair<Role, std::string>> groups;
  for (const StateReport& report : reports) {
    for (const GroupAnalysis& group : report.analysis.groups) {
      const std::pair key(group.role, group.dtype_name);
      if (std::ranges::find(groups, key) == groups.end()) {
        groups.push_back(key);
      }
    }
  }
  for (const auto& key : groups) {
    const Role role = key.first;
    const std::string& dtype = key.second;
    const bool alone = std::ranges::count_if(groups, [&](const auto& other) { return other.first == role; }) == 1;
    std::string title = alone ? std::string(role_name(role)) : fmt::format("{} {}", role_name(role), printable(dtype));
    if (!table.empty()) {
      table.add_rule();
    }
    for (const StateReport& report : reports) {
      const auto& own = report.analysis.groups;
      const auto found = std::ranges::find_if(
          own, [&](const GroupAnalysis& group) { return group.role == role && group.dtype_name == dtype; });
      if (found == own.end()) {
        continue;
      }
      const Findings& findings = found->findings;
      const auto& change = findings.change;
      std::vector<std::string> row = {
          std::exchange(title, ""),
          printable(report.state.label()),
          change ? format_percent(change->changed) : std::string(kNone),
          change && !change->distances.empty() ? format_percent(near_share(*change)) : std::string(kNone),
          format_bits(findings.exponent_entropy),
          change ? format_bits(change->delta_entropy) : std::string(kNone),
          change ? format_bits(change->delta_entropy_by_exponent) : std::string(kNone),
          format_bits(findings.best_alone),
          format_bits(findings.best_on_base)};
      if (is_stored) {
        const auto& stored = report.groups[static_cast<std::size_t>(found - own.begin())];
        row.push_back(
            stored ? format_bits(8 * static_cast<double>(stored->stored_bytes) / static_cast<double>(findings.elements))
                   : std::string(kNone));
      }
      table.add_row(std::move(row));
    }
  }
  return fmt::format("{}, each against the one before; from exponent on, bits per element\n{}\n",
                     format_plural(reports.size(), is_run ? "checkpoint" : "state"), table.render(width));
}

}  // namespace bitsnap::cli
