// The tables of `analyze` about coders and quantizers, by role and dtype, and about how each role changes from state to
// state.
#include "cli/analysis/analyze_report.hpp"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

std::string coder_name(const CodedFindings& coded) {
  return coded.form == CodedFindings::Form::alone ? coded.coder
                                                  : coded.coder + "+" + std::string(coded_form_name(coded.form));
}

using CoderList = std::vector<CodedFindings> Findings::*;

// One row per coder that any group has, in the order of the groups.
void add_coders(const StateReport& report, CoderList list, Table& table) {
  std::vector<std::string> names;
  for (const GroupAnalysis& group : report.analysis.groups) {
    for (const CodedFindings& coded : group.findings.*list) {
      std::string name = coder_name(coded);
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  }
  for (const std::string& name : names) {
    std::vector<std::string> row = {name};
    for (const GroupAnalysis& group : report.analysis.groups) {
      const auto& own = group.findings.*list;
      const auto found =
          std::ranges::find_if(own, [&](const CodedFindings& coded) { return coder_name(coded) == name; });
      row.push_back(found == own.end() ? std::string(kNone) : format_bits(found->bits));
    }
    table.add_row(std::move(row));
  }
}

std::vector<Column> group_columns(std::string first, const GroupTitles& titles) {
  std::vector<Column> columns = {{std::move(first)}};
  for (const std::string& title : titles) columns.push_back({title, Align::right});
  return columns;
}

// Share of elements with a ULP distance of at most 1.
double near_share(const ChangeFindings& change) {
  double share = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(2, change.distances.size()); ++i) share += change.distances[i];
  return share;
}

}  // namespace

std::string render_coders(const StateReport& report, const GroupTitles& titles, Width width) {
  Table table(group_columns("coder", titles));
  add_coders(report, &Findings::codecs, table);
  table.add_rule();
  const auto add_best = [&](std::string name, std::optional<BestCodec> Findings::* best) {
    std::vector<std::string> row = {std::move(name)};
    for (const GroupAnalysis& group : report.analysis.groups) row.push_back(format_bits(group.findings.*best));
    table.add_row(std::move(row));
  };
  add_best("best alone", &Findings::best_alone);
  if (report.earlier) add_best("best with base", &Findings::best_on_base);
  table.add_rule();
  add_coders(report, &Findings::baselines, table);
  return titled("bits per element by coder, without help from other tensors", table, width);
}

std::string render_quantizers(const StateReport& report, const GroupTitles& titles, Width width) {
  std::vector<std::pair<std::string, double>> points;
  std::vector<std::size_t> shown;
  const auto has_updates = [&](std::size_t group) {
    return std::ranges::any_of(report.analysis.groups[group].findings.quantizers,
                               [](const QuantizerFindings& point) { return point.update.has_value(); });
  };
  for (std::size_t i = 0; i < titles.size(); ++i) {
    for (const QuantizerFindings& point : report.analysis.groups[i].findings.quantizers) {
      const std::pair key(point.quantizer, point.parameter);
      if (std::ranges::find(points, key) == points.end()) points.push_back(key);
      if (shown.empty() || shown.back() != i) shown.push_back(i);
    }
  }
  std::ranges::sort(points, {}, [](const auto& point) {
    return std::tuple(point.first != "round_mantissa", point.first, point.second);
  });
  std::vector<Column> columns = {{"quantizer"}};
  for (const std::size_t i : shown) {
    columns.push_back({titles[i], Align::right});
    columns.push_back({"MRE", Align::right});
    if (has_updates(i)) columns.push_back({"update", Align::right, Narrow::never, 1});
  }
  Table table(std::move(columns));
  for (const auto& point : points) {
    std::vector<std::string> row = {fmt::format("{} {}", point.first, point.second)};
    for (const std::size_t i : shown) {
      const auto& own = report.analysis.groups[i].findings.quantizers;
      const auto found = std::ranges::find_if(own, [&](const QuantizerFindings& one) {
        return one.quantizer == point.first && one.parameter == point.second;
      });
      if (found == own.end()) {
        row.insert(row.end(), has_updates(i) ? 3 : 2, std::string(kNone));
        continue;
      }
      row.push_back(format_bits(found->nominal_bits.value_or(found->bits_on_base.value_or(found->bits))));
      row.push_back(format_error(found->mean_relative));
      if (has_updates(i)) {
        const auto& update = found->update;
        row.push_back(update && update->mean_of_updates > 0 ? format_error(update->mean / update->mean_of_updates)
                                                            : std::string(kNone));
      }
    }
    table.add_row(std::move(row));
  }
  const bool any_updates = std::ranges::any_of(shown, has_updates);
  std::string title = "bits per element and mean relative error (MRE) after quantizing";
  if (report.earlier) title += ", with base";
  if (any_updates) title += "; update: mean error of updates";
  std::string text = titled(title, table, width);
  const bool has_moments = std::ranges::any_of(report.analysis.groups, [](const GroupAnalysis& group) {
    return group.role == Role::exp_avg && group.dtype == DType::f32;
  });
  if (has_moments && !report.adam) {
    text += fmt::format("update_step is left out: it needs Adam's values, as --betas 0.9,0.95 --eps 1e-8{}\n",
                        report.state.run ? "" : " --adam-step 1000");
  }
  return text;
}

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
  if (is_stored) columns.push_back({"stored", Align::right});
  Table table(std::move(columns));
  // All groups, in the order in which the states have them.
  std::vector<std::pair<Role, std::string>> groups;
  for (const StateReport& report : reports) {
    for (const GroupAnalysis& group : report.analysis.groups) {
      const std::pair key(group.role, group.dtype_name);
      if (std::ranges::find(groups, key) == groups.end()) groups.push_back(key);
    }
  }
  for (const auto& key : groups) {
    const Role role = key.first;
    const std::string& dtype = key.second;
    const bool alone = std::ranges::count_if(groups, [&](const auto& other) { return other.first == role; }) == 1;
    std::string title = alone ? std::string(role_name(role)) : fmt::format("{} {}", role_name(role), printable(dtype));
    if (!table.empty()) table.add_rule();
    for (const StateReport& report : reports) {
      const auto& own = report.analysis.groups;
      const auto found = std::ranges::find_if(
          own, [&](const GroupAnalysis& group) { return group.role == role && group.dtype_name == dtype; });
      if (found == own.end()) continue;
      const Findings& findings = found->findings;
      const auto& change = findings.change;
      std::vector<std::string> row = {
          std::exchange(title, ""),
          printable(report.state.label()),
          change ? format_share(change->changed) : std::string(kNone),
          change && !change->distances.empty() ? format_share(near_share(*change)) : std::string(kNone),
          format_bits(findings.exponent_entropy),
          change ? format_bits(change->delta_entropy) : std::string(kNone),
          change ? format_bits(change->delta_entropy_by_exponent) : std::string(kNone),
          format_bits(findings.best_alone),
          format_bits(findings.best_on_base)};
      if (is_stored) {
        const auto bits = [&] {
          const StreamSizes& stored = report.groups[static_cast<std::size_t>(found - own.begin())];
          return 8 * static_cast<double>(stored.stored_bytes) / static_cast<double>(findings.elements);
        };
        row.push_back(report.stored_bytes ? format_bits(bits()) : std::string(kNone));
      }
      table.add_row(std::move(row));
    }
  }
  return fmt::format("{}, each against the one before; from exponent on, bits per element\n{}\n",
                     format_plural(reports.size(), is_run ? "checkpoint" : "state"), table.render(width));
}

}  // namespace bitsnap::cli
