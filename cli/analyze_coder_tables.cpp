// The tables of `analyze` about coders and quantizers, by role and dtype.
#include "cli/analyze_tables.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/table.hpp"
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
      if (std::ranges::find(names, name) == names.end()) {
        names.push_back(std::move(name));
      }
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
  for (const std::string& title : titles) {
    columns.push_back({title, Align::right});
  }
  return columns;
}

}  // namespace

std::string render_coders(const StateReport& report, const GroupTitles& titles, Width width) {
  Table table(group_columns("coder", titles));
  add_coders(report, &Findings::codecs, table);
  table.add_rule();
  const auto add_best = [&](std::string name, std::optional<BestCodec> Findings::* best) {
    std::vector<std::string> row = {std::move(name)};
    for (const GroupAnalysis& group : report.analysis.groups) {
      row.push_back(format_bits(group.findings.*best));
    }
    table.add_row(std::move(row));
  };
  add_best("best alone", &Findings::best_alone);
  if (report.earlier) {
    add_best("best with base", &Findings::best_on_base);
  }
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
      if (std::ranges::find(points, key) == points.end()) {
        points.push_back(key);
      }
      if (shown.empty() || shown.back() != i) {
        shown.push_back(i);
      }
    }
  }
  std::ranges::sort(points, {}, [](const auto& point) {
    return std::tuple(point.first != "round_mantissa", point.first, point.second);
  });
  std::vector<Column> columns = {{"quantizer"}};
  for (const std::size_t i : shown) {
    columns.push_back({titles[i], Align::right});
    columns.push_back({"MRE", Align::right});
    if (has_updates(i)) {
      columns.push_back({"update", Align::right, Narrow::never, 1});
    }
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
  if (report.earlier) {
    title += ", with base";
  }
  if (any_updates) {
    title += "; update: mean error of updates";
  }
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

}  // namespace bitsnap::cli
