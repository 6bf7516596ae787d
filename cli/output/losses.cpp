// Bounds, and errors beside them.
#include "cli/output/losses.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

std::string rule_text(const LossReport& report) {
  return fmt::format("{} {}", quantization_name(report.quantization), report.amount);
}

std::string format_error(double error) { return error == 0 ? "0" : fmt::format("{:.2e}", error); }

double share(double sum, std::uint64_t count) { return count == 0 ? 0 : sum / static_cast<double>(count); }

// The unit that a bound is in, and what was reached of it.
std::string_view unit_of(const LossReport& report) {
  switch (report.quantization) {
    case Quantization::update_step: return "of the update";
    case Quantization::clusters: return "absolute";
    default: return "relative";
  }
}

double reached_of(const LossReport& report) {
  switch (report.quantization) {
    case Quantization::update_step: return report.updates.largest;
    case Quantization::clusters: return report.reached.max_absolute;
    default: return report.reached.max_relative;
  }
}

struct Line {
  std::string name;
  std::uint64_t tensors = 0;
  LossReport report;
};

void merge(LossReport& to, const LossReport& other) {
  to.bound = to.bound && other.bound ? std::optional(std::max(*to.bound, *other.bound)) : std::nullopt;
  to.reached.merge(other.reached);
  to.updates.elements += other.updates.elements;
  to.updates.largest = std::max(to.updates.largest, other.updates.largest);
  to.updates.sum += other.updates.sum;
}

}  // namespace

std::string render_losses(const Snapshot& snapshot, const CommonOptions& common) {
  std::vector<Line> lines;
  for (std::size_t i = 0; i < snapshot.tensors().size(); ++i) {
    const TensorInfo& tensor = snapshot.tensors()[i];
    const auto stream = snapshot.stream_of(i);
    if (!stream || tensor.alias_of || !snapshot.quantizer(*stream)) continue;
    const LossReport& report = *snapshot.quantizer(*stream);
    std::string name = common.verbose ? printable(tensor.name) : std::string(role_name(tensor.role));
    const auto known = std::ranges::find_if(lines, [&](const Line& line) {
      return !common.verbose && line.name == name && rule_text(line.report) == rule_text(report);
    });
    if (known == lines.end()) {
      lines.push_back({std::move(name), 1, report});
    } else {
      ++known->tensors;
      merge(known->report, report);
    }
  }
  if (lines.empty()) return {};
  Table table({{common.verbose ? "lossy" : "lossy role", Align::left, Narrow::middle},
               {"tensors", Align::right, Narrow::never, 1},
               {"what"},
               {"bound", Align::right},
               {"reached", Align::right},
               {"", Align::left},
               {"MRE", Align::right, Narrow::never, 3},
               {"MSE", Align::right, Narrow::never, 4},
               {"update, mean", Align::right, Narrow::never, 2}});
  for (const Line& line : lines) {
    const ErrorTally& reached = line.report.reached;
    const UpdateErrors& updates = line.report.updates;
    table.add_row({line.name, format_count(line.tensors), rule_text(line.report),
                   line.report.bound ? format_error(*line.report.bound) : "-", format_error(reached_of(line.report)),
                   std::string(unit_of(line.report)), format_error(reached.mean_relative()),
                   format_error(reached.mean_square()),
                   updates.elements == 0 ? "-" : format_error(share(updates.sum, updates.elements))});
  }
  return table.render(common.table_width());
}

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const AdamNumbers& adam) {
  json = {{"betas", {adam.beta1, adam.beta2}}, {"eps", adam.eps}, {"step", adam.step}};
}

static void to_json(cli::Json& json, const UpdateErrors& updates) {
  json = {{"elements", updates.elements},
          {"largest", updates.largest},
          {"mean", cli::share(updates.sum, updates.elements)},
          {"mean_square", cli::share(updates.sum_square, updates.elements)},
          {"mean_of_updates", cli::share(updates.sum_update, updates.elements)},
          {"mean_square_of_updates", cli::share(updates.sum_update_square, updates.elements)}};
}

void to_json(cli::Json& json, const LossReport& report) {
  const ErrorTally& reached = report.reached;
  json = {{"name", quantization_name(report.quantization)},
          {"amount", report.amount},
          {"bound", report.bound},
          {"bound_of", cli::unit_of(report)},
          {"next_update_bound", report.next_update_bound},
          {"all_updates_bound", report.all_updates_bound},
          {"elements", reached.elements},
          {"changed", reached.changed},
          {"kept_exact", reached.kept_exact()},
          {"past_nearest", reached.past_nearest},
          {"max_relative", reached.max_relative},
          {"mean_relative", reached.mean_relative()},
          {"max_absolute", reached.max_absolute},
          {"mean_square", reached.mean_square()}};
  if (report.adam) json["adam"] = *report.adam;
  if (report.updates.elements > 0) json["update"] = report.updates;
}

}  // namespace bitsnap
