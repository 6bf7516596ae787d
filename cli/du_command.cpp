// `bitsnap du`: bytes of a run by role and by step, and the bytes that pruning would free.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/store.hpp>

#include "cli/common_options.hpp"
#include "cli/error_macros.hpp"
#include "cli/exit_code.hpp"
#include "cli/output.hpp"
#include "cli/progress_bar.hpp"
#include "cli/retention_options.hpp"
#include "cli/run_path.hpp"
#include "cli/run_sizes.hpp"
#include "cli/stored_sizes.hpp"
#include "cli/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::size_t kMostSteps = 50;  // shown without -v

struct DuOptions {
  std::string run;
  Retention retention;
};

struct DuReport {
  std::vector<CheckpointSizes> checkpoints;
  std::vector<PruneReport::Needed> needed;  // pruned, but kept because others need them
  StoredRole needed_sum;
  CheckpointSizes total;  // including `needed`
  std::optional<PruneReport> pruning;
};

Json role_json(const StoredRole& role) {
  return {{"raw_bytes", role.raw_bytes},
          {"stored_bytes", role.stored_bytes},
          {"ratio", ratio_json(role.raw_bytes, role.stored_bytes)}};
}

void add_sizes(Json& document, const CheckpointSizes& sizes) {
  document["raw_bytes"] = sizes.total.raw_bytes;
  document["stored_bytes"] = sizes.total.stored_bytes;
  document["ratio"] = ratio_json(sizes.total.raw_bytes, sizes.total.stored_bytes);
  document["roles"] = Json::object();
  for (const auto& [role, role_sizes] : sizes.roles) {
    document["roles"][std::string(role_name(role))] = role_json(role_sizes);
  }
  document["pool"] = role_json(sizes.pool);
  document["index_bytes"] = sizes.overhead_bytes;
}

void print_report_json(const DuOptions& options, const DuReport& report) {
  Json document = {{"run", options.run}, {"checkpoints", report.checkpoints.size()}};
  add_sizes(document, report.total);
  document["steps"] = Json::array();
  for (const CheckpointSizes& checkpoint : report.checkpoints) {
    Json step = {{"step", checkpoint.step}};
    if (checkpoint.damage) {
      step["damage"] = to_json(*checkpoint.damage);
    } else {
      add_sizes(step, checkpoint);
    }
    document["steps"].push_back(std::move(step));
  }
  document["needed"] = Json::array();
  for (const PruneReport::Needed& needed : report.needed) {
    document["needed"].push_back({{"step", needed.step}, {"bytes", needed.bytes}, {"by", needed.by}});
  }
  document["prune"] = report.pruning ? to_json(*report.pruning) : Json();
  print_json(document);
}

std::string render_roles(const DuReport& report, std::optional<std::size_t> width) {
  const CheckpointSizes& total = report.total;
  Table table({{"role"},
               {"raw", Align::right, Narrow::never, 2},
               {"stored", Align::right},
               {"ratio", Align::right, Narrow::never, 1},
               {"share", Align::right}});
  const auto add = [&](std::string name, const StoredRole& role) {
    table.add_row({std::move(name), format_size(role.raw_bytes), format_size(role.stored_bytes),
                   format_ratio(role.raw_bytes, role.stored_bytes),
                   format_share(role.stored_bytes, total.total.stored_bytes)});
  };
  for (const Role role : kRoleOrder) {
    if (const auto found = total.roles.find(role); found != total.roles.end()) {
      add(std::string(role_name(role)), found->second);
    }
  }
  if (total.pool.raw_bytes > 0) {
    add("(pool)", total.pool);
  }
  const auto add_stored = [&](std::string name, std::uint64_t bytes) {
    table.add_row({std::move(name), "", format_size(bytes), "", format_share(bytes, total.total.stored_bytes)});
  };
  add_stored("(index)", total.overhead_bytes);
  if (!report.needed.empty()) {
    add_stored("(needed)", report.needed_sum.stored_bytes);
  }
  table.add_rule();
  add("total", total.total);
  return table.render(width);
}

// Only the roles of the run. A narrow terminal loses the last columns, whose sums stand in the table above.
std::string render_steps(const DuReport& report, std::optional<std::size_t> width) {
  std::vector<Column> columns = {{"step", Align::right}, {"stored", Align::right}};
  std::vector<Role> roles;
  unsigned spare = 1;
  for (const Role role : kRoleOrder) {
    if (report.total.roles.contains(role)) {
      roles.push_back(role);
      columns.push_back({std::string(role_name(role)), Align::right, Narrow::never, spare++});
    }
  }
  const bool with_pool = report.total.pool.raw_bytes > 0;
  if (with_pool) {
    columns.push_back({"(pool)", Align::right, Narrow::never, spare++});
  }
  columns.push_back({"(index)", Align::right, Narrow::never, spare});
  const std::size_t count = columns.size();
  Table table(std::move(columns));
  for (const CheckpointSizes& checkpoint : report.checkpoints) {
    std::vector<std::string> row = {fmt::format("{}", checkpoint.step)};
    if (checkpoint.damage) {
      row.emplace_back("damaged");
      row.resize(count, "-");
      table.add_row(std::move(row));
      continue;
    }
    row.push_back(format_size(checkpoint.total.stored_bytes));
    for (const Role role : roles) {
      const auto found = checkpoint.roles.find(role);
      row.push_back(found == checkpoint.roles.end() ? "-" : format_size(found->second.stored_bytes));
    }
    if (with_pool) {
      row.push_back(format_size(checkpoint.pool.stored_bytes));
    }
    row.push_back(format_size(checkpoint.overhead_bytes));
    table.add_row(std::move(row));
  }
  return table.render(width);
}

std::string render(const DuReport& report, const CommonOptions& common) {
  std::string out = render_roles(report, common.table_width());
  const std::size_t steps = report.checkpoints.size();
  if (steps > kMostSteps && !common.verbose) {
    out += fmt::format("\n{}; -v shows each\n", format_plural(steps, "checkpoint"));
  } else if (steps > 0) {
    out += '\n' + render_steps(report, common.table_width());
  }
  for (const PruneReport::Needed& needed : report.needed) {
    out +=
        fmt::format("step {} was pruned: step {} needs it ({})\n", needed.step, needed.by, format_size(needed.bytes));
  }
  for (const CheckpointSizes& checkpoint : report.checkpoints) {
    if (checkpoint.damage) {
      out += fmt::format("step {} [{}]: {}\n", checkpoint.step, error_kind_name(checkpoint.damage->kind()),
                         printable(checkpoint.damage->message()));
    }
  }
  if (report.pruning) {
    out += '\n' + (common.verbose || steps <= kMostSteps ? render_pruning(*report.pruning)
                                                         : render_pruning_sum(*report.pruning));
  }
  return out;
}

Result<PruneReport> foresee_pruning(Store& store, const Retention& retention) {
  PruneOptions options;
  options.dry_run = true;
  return store.prune(retention, options);
}

void find_needed(Store& store, DuReport& report) {
  if (auto pruned = find_pruned(store)) {  // fails if a damage, which is shown, hides who needs what
    report.needed = std::move(*pruned);
  }
  for (const PruneReport::Needed& needed : report.needed) {
    report.needed_sum.stored_bytes += needed.bytes;
  }
  report.total.total += report.needed_sum;
}

Result<int> du(const DuOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto store, open_to_read(options.run));
  DuReport report;
  {
    ProgressBar bar(run_name(options.run), !common.quiet, ProgressBar::Unit::share);
    BITSNAP_ASSIGN(report.checkpoints, measure_run(*store, bar));
  }
  for (const CheckpointSizes& checkpoint : report.checkpoints) {
    report.total += checkpoint;
  }
  find_needed(*store, report);
  if (is_given(options.retention)) {
    BITSNAP_ASSIGN(report.pruning, foresee_pruning(*store, options.retention));
  }
  if (common.json) {
    print_report_json(options, report);
  } else {
    print_result(render(report, common));
  }
  return kExitOk;
}

}  // namespace

Command add_du(CLI::App& program, const CommonOptions& common) {
  auto options = std::make_shared<DuOptions>();
  CLI::App* app = program.add_subcommand("du", "Show the bytes of a run by role and by step");
  app->group(kRunsGroup);
  app->add_option("RUN", options->run, "The directory of the run")->required()->type_name("");
  add_keep_options(*app, options->retention);
  add_keep_steps_option(*app, options->retention);
  app->footer(
      fmt::format("With a --keep option, also prints what `prune` would free with it.\n"
                  "For more than {} checkpoints only sums are shown; -v and --json show each.",
                  kMostSteps));
  return {app, [options, &common] { return du(*options, common); }};
}

}  // namespace bitsnap::cli
