// `bitsnap label`: lists, gives and removes the labels of a run.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/number_option.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

struct LabelOptions {
  std::string path;
  std::vector<std::string> given;
  std::vector<std::string> removed;
  std::string best;  // a metric
  bool highest = false;
  std::chrono::milliseconds wait{0};
};

std::string render(const std::string& run, const std::vector<StepLabel>& labels, std::optional<std::size_t> width) {
  if (labels.empty()) return fmt::format("{}: no labels\n", printable(run));
  Table table({{"step", Align::right}, {"label", Align::left, Narrow::end}});
  for (const StepLabel& label : labels) table.add_row({fmt::format("{}", label.step), printable(label.label)});
  return table.render(width);
}

Result<void> list(const RunPath& path, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto store, open_to_read(path.run));
  BITSNAP_ASSIGN(std::vector<StepLabel> labels, store->labels());
  if (path.step) std::erase_if(labels, [&](const StepLabel& label) { return label.step != *path.step; });
  if (!common.json) {
    print_result(render(path.run, labels, common.table_width()));
    return {};
  }
  Json steps = Json::object();
  for (const StepLabel& label : labels) steps[label.label] = label.step;
  print_json({{"run", path.run}, {"labels", std::move(steps)}});
  return {};
}

// The labels that are removed must name the step, if one is given.
Result<void> remove_labels(Store& store, const LabelOptions& options, const RunPath& path) {
  const std::set<std::string> removed(options.removed.begin(), options.removed.end());
  for (const std::string& label : removed) {
    BITSNAP_ASSIGN(const std::uint64_t step, store.find(label));
    if (path.step && step != *path.step) {
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: has no label '{}', which names step {}", checkpoint_name(path.run, *path.step),
                              printable(label), step));
    }
  }
  for (const std::string& label : removed) BITSNAP_TRY(store.unlabel(label));
  return {};
}

// The checkpoint in which the metric is the lowest, or the highest. Of equal ones, the newest.
Result<std::uint64_t> best_step(const Store& store, const LabelOptions& options, const std::string& run) {
  BITSNAP_ASSIGN(const std::vector<Checkpoint> checkpoints, store.checkpoints());
  std::optional<std::pair<double, std::uint64_t>> best;
  std::set<std::string> others;
  for (const Checkpoint& info : checkpoints) {
    for (const auto& [name, value] : info.metrics) {
      if (name != options.best) {
        others.insert(printable(name));
      } else if (!std::isnan(value) && (!best || (options.highest ? value >= best->first : value <= best->first))) {
        best.emplace(value, info.step);
      }
    }
  }
  if (best) return best->second;
  return fail(ErrorKind::not_found,
              fmt::format("{}: no checkpoint has the metric '{}'{}", printable(run), printable(options.best),
                          others.empty() ? "; save(..., metrics={...}) in Python stores metrics"
                                         : fmt::format("; there is {}", fmt::join(others, ", "))));
}

Result<int> label(LabelOptions options, const CommonOptions& common) {
  BITSNAP_ASSIGN(RunPath path, parse_run_path(options.path));
  if (!options.best.empty() && path.step) {
    return fail(ErrorKind::invalid_argument, "--best chooses the checkpoint itself: name the run without a step");
  }
  if (!options.best.empty() && options.given.empty()) options.given = {"best"};
  if (!options.given.empty() || !options.removed.empty()) {
    BITSNAP_ASSIGN(auto store, open_to_write(path.run, {.create = false}, options.wait));
    BITSNAP_TRY(remove_labels(*store, options, path));
    if (!options.given.empty()) {
      if (!options.best.empty()) {
        BITSNAP_ASSIGN(path.step, best_step(*store, options, path.run));
      } else if (!path.step) {
        BITSNAP_ASSIGN(path.step, newest_step(*store, path.run));
      }
      BITSNAP_TRY(store->label(*path.step, options.given));
    }
  }
  if (common.json || !common.quiet || (options.given.empty() && options.removed.empty())) {
    BITSNAP_TRY(list(path, common));
  }
  return kExitOk;
}

}  // namespace

Command add_label(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<LabelOptions>(program, kRunsGroup, "label", "List the labels of a run, or give and remove them");
  add_argument(*app, "RUN[@STEP]", options->path,
               "The run, or one of its checkpoints; labels go to the newest by default");
  CLI::Option* given = app->add_option("NAME", options->given, "Labels that the checkpoint gets")->type_name("");
  app->add_option("--remove", options->removed, "Remove this label; its checkpoint stays")
      ->type_name("NAME")
      ->expected(1)
      ->take_all()
      ->excludes(given);
  CLI::Option* best = app->add_option("--best", options->best,
                                      "Give the labels, 'best' by default, to the checkpoint with the lowest METRIC")
                          ->type_name("METRIC");
  app->add_flag("--highest", options->highest, "With --best, to the one with the highest")->needs(best);
  add_wait_option(*app, options->wait);
  app->footer(
      "A label is a name of a checkpoint beside its step. It names one checkpoint of the run: giving it to another one "
      "moves it. RUN@NAME is the checkpoint with this label, in all commands; digits alone are always a step, and no "
      "label.");
  return {app, [options, &common] { return label(*options, common); }};
}

}  // namespace bitsnap::cli
