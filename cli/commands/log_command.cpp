// `bitsnap log`: lists the checkpoints of a run from their commit records. Opens no snapshot.
#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/branch_tree.hpp"
#include "cli/output/table.hpp"
#include "cli/retention_options.hpp"
#include "cli/text_format.hpp"

namespace bitsnap {

static void to_json(cli::Json& json, const Checkpoint& checkpoint) {
  json = {{"step", checkpoint.step}};
  if (checkpoint.damage) json["damage"] = checkpoint.damage;
  if (checkpoint.shards == 0) return;
  json["time_unix_ms"] = checkpoint.time_unix_ms;
  json["time"] = cli::format_utc_time(checkpoint.time_unix_ms);
  json["raw_bytes"] = checkpoint.raw_bytes;
  json["stored_bytes"] = checkpoint.stored_bytes;
  json["ratio"] = cli::ratio_json(checkpoint.raw_bytes, checkpoint.stored_bytes);
  json["base"] = checkpoint.base;
  json["links"] = checkpoint.links;
  json["depth"] = checkpoint.depth;
  json["shards"] = checkpoint.shards;
  json["labels"] = checkpoint.labels;
  if (!checkpoint.metrics.empty())
    json["metrics"] = std::map<std::string, double>(checkpoint.metrics.begin(), checkpoint.metrics.end());
  json["needed"] = checkpoint.needed;
}

}  // namespace bitsnap

namespace bitsnap::cli {

namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kMostMetrics = 4;  // columns of metrics

// Which columns there are besides those that every run has.
struct Extras {
  std::vector<std::string> metrics;  // by name
  bool shards = false;
  bool labels = false;
};

Extras extras_of(const std::vector<Checkpoint>& checkpoints) {
  Extras extras;
  std::set<std::string> metrics;
  for (const Checkpoint& info : checkpoints) {
    for (const auto& [name, value] : info.metrics) metrics.insert(name);
    extras.shards = extras.shards || info.shards > 1;
    extras.labels = extras.labels || !info.labels.empty();
  }
  extras.metrics.assign(metrics.begin(), metrics.end());
  if (extras.metrics.size() > kMostMetrics) extras.metrics.resize(kMostMetrics);
  return extras;
}

std::string render_labels(const Checkpoint& info) {
  std::string text;
  for (const std::string& label : info.labels) text += fmt::format("{}{}", text.empty() ? "" : ", ", printable(label));
  return text;
}

// The cells of the columns that every run has, and then the others.
Row checkpoint_row(const Checkpoint& info, const Extras& extras) {
  const bool is_unknown = info.damage && info.shards == 0;
  Row row = {fmt::format("{}", info.step), "damaged", "-", "-", "-", "-", "-"};
  if (!is_unknown) {
    row = {fmt::format("{}", info.step),
           info.damage ? "damaged" : format_local_time(info.time_unix_ms),
           format_size(info.raw_bytes),
           format_size(info.stored_bytes),
           format_ratio(info.raw_bytes, info.stored_bytes),
           info.base ? fmt::format("{}", *info.base) : "-",
           fmt::format("{}", info.depth)};
  }
  for (const std::string& name : extras.metrics) {
    const auto found = std::ranges::find(info.metrics, name, &std::pair<std::string, double>::first);
    row.push_back(found == info.metrics.end() ? "-" : fmt::format("{:.5g}", found->second));
  }
  if (extras.shards) row.push_back(is_unknown ? "-" : fmt::format("{}", info.shards));
  if (extras.labels) row.push_back(render_labels(info));
  return row;
}

Row total_row(const RunUsage& usage, std::size_t columns) {
  Row row = {"total", format_plural(usage.checkpoints, "checkpoint"), format_size(usage.raw_bytes),
             format_size(usage.held_bytes()), format_ratio(usage.raw_bytes, usage.held_bytes())};
  row.resize(columns);
  return row;
}

// What the checkpoints take besides their own files.
Row needed_row(const RunUsage& usage, std::uint64_t first_own, std::size_t columns) {
  const bool has_earlier = std::ranges::any_of(usage.needed, [&](const auto& each) { return each.step < first_own; });
  Row row = {"", format_count(usage.needed.size()) + (has_earlier ? " earlier, needed" : " pruned, needed"), "",
             format_size(usage.needed_bytes)};
  row.resize(columns);
  return row;
}

std::string render(const RunPath& path, const std::vector<Checkpoint>& checkpoints, const RunUsage& usage,
                   std::uint64_t first_own, std::optional<std::size_t> width) {
  if (checkpoints.empty()) return fmt::format("{}: no checkpoint yet\n", printable(path.run));
  const Extras extras = extras_of(checkpoints);
  constexpr auto kUncut = Narrow::never;
  std::vector<Column> columns = {{"step", Align::right},
                                 {"time", Align::left, kUncut, 1},
                                 {"raw", Align::right, kUncut, 5},
                                 {"stored", Align::right},
                                 {"ratio", Align::right, kUncut, 2},
                                 {"base", Align::right, kUncut, 3},
                                 {"depth", Align::right, kUncut, 6}};
  for (const std::string& name : extras.metrics) columns.push_back({printable(name), Align::right});
  if (extras.shards) columns.push_back({"shards", Align::right, kUncut, 4});
  if (extras.labels) columns.push_back({"labels", Align::left, Narrow::end});
  const std::size_t count = columns.size();
  Table table(std::move(columns));
  std::string damages;
  for (const Checkpoint& info : checkpoints) {
    table.add_row(checkpoint_row(info, extras));
    if (info.damage) {
      damages += fmt::format("step {} [{}]: {}\n", info.step, error_kind_name(info.damage->kind()),
                             printable(info.damage->message()));
    }
  }
  if (!path.step) {
    if (!usage.needed.empty()) table.add_row(needed_row(usage, first_own, count));
    table.add_rule();
    table.add_row(total_row(usage, count));
  }
  return table.render(width) + render_needed(usage.needed, first_own, true) + damages;
}

// All checkpoints, or the one that the path names.
Result<std::vector<Checkpoint>> find_checkpoints(const Store& store, const RunPath& path) {
  if (!path.step) return store.checkpoints();
  return store.checkpoint(*path.step).map([](Checkpoint info) { return std::vector<Checkpoint>{std::move(info)}; });
}

// Notes at each checkpoint which pruned ones stay for it.
RunUsage find_usage(Store& store, const RunPath& path, std::vector<Checkpoint>& checkpoints) {
  RunUsage usage;
  if (path.step) {
    usage.needed = checkpoints.front().needed;
  } else if (auto found = store.usage()) {
    usage = std::move(*found);
  } else {  // a damaged record, which is shown, hides who needs what
    usage.checkpoints = checkpoints.size();
    for (const Checkpoint& info : checkpoints) {
      usage.raw_bytes += info.raw_bytes;
      usage.stored_bytes += info.stored_bytes;
    }
  }
  for (const PruneReport::Needed& needed : usage.needed) {
    const auto by = std::ranges::lower_bound(checkpoints, needed.by, {}, &Checkpoint::step);
    if (!path.step && by != checkpoints.end() && by->step == needed.by) by->needed.push_back(needed);
  }
  return usage;
}

// Where the run was branched off, and the branches that were made from it.
std::string render_lines(const Store& store, const std::string& run, std::optional<std::size_t> width) {
  const auto branches = store.branches();
  if (!branches) return fmt::format("branches: {}\n", printable(branches.error().message()));
  const auto own = std::ranges::find(*branches, store.path(), &Branch::path);
  std::string out;
  if (own != branches->end() && own->origin) {
    const std::string parent = run_name(run_of_branch(store.path()));
    out += fmt::format("\nbranch of {}{} from step {}\n", printable(parent),
                       own->origin->branch.empty() ? "" : ":" + printable(own->origin->branch), own->origin->step);
  }
  const std::string tree = render_branches(*branches, own == branches->end() ? "" : own->name, width);
  return tree.empty() ? out : fmt::format("{}\n{}\n{}", out, printable(run), tree);
}

Result<int> log(const std::string& text, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto path, find_run(text));
  const RunPath run = path.value_or(RunPath{text, std::nullopt});
  BITSNAP_ASSIGN(auto store, open_to_read(run.run));
  BITSNAP_ASSIGN(auto checkpoints, find_checkpoints(*store, run));
  const RunUsage usage = find_usage(*store, run, checkpoints);
  if (common.json) {
    print_json(checkpoints);
  } else {
    print_result(render(run, checkpoints, usage, first_own_step(*store), common.table_width()) +
                 (run.step ? "" : render_lines(*store, run.run, common.table_width())));
  }
  return kExitOk;
}

}  // namespace

Command add_log(CLI::App& program, const CommonOptions& common) {
  auto [app, run] = new_command<std::string>(program, kRunsGroup, "log", "List the checkpoints of a run, newest last");
  add_argument(*app, "RUN[@STEP]", *run, "The run, or one of its checkpoints");
  app->alias("ls");
  app->footer(
      "base: the step that the checkpoint is coded against; none for a keyframe.\n"
      "depth: how many earlier checkpoints have to be decoded for one of its chunks, at most.\n"
      "Branches are drawn below. not shared: what removing the branch would free.");
  return {app, [run, &common] { return log(*run, common); }};
}

}  // namespace bitsnap::cli
