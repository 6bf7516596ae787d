// `bitsnap du`: bytes of a run by role and by step, and the bytes that pruning would free.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/object_store.hpp>
#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/output/branch_tree.hpp"
#include "cli/output/month_in_bucket.hpp"
#include "cli/output/progress_bar.hpp"
#include "cli/output/stored_sizes.hpp"
#include "cli/output/table.hpp"
#include "cli/retention_options.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr std::size_t kMostSteps = 50;  // shown without -v

struct DuOptions {
  std::string run;
  Retention retention;
  std::vector<double> prices;
};

struct CheckpointSizes : Sizes {
  std::uint64_t step = 0;
  std::optional<Error> damage;  // set if the checkpoint cannot be opened; all sizes are 0 then
};

struct DuReport {
  std::vector<CheckpointSizes> checkpoints;
  std::vector<PruneReport::Needed> needed;  // pruned, but kept because others need them
  std::uint64_t needed_bytes = 0;
  std::uint64_t first_own = 0;  // first_own_step()
  Sizes total;                  // including `needed`
  std::optional<PruneReport> pruning;
  std::vector<Branch> branches;  // of the run, if it is no branch itself
  std::optional<MonthInBucket> month;
};

// What is left of the sizes of a shard whose file was counted with an equal shard.
void drop_stored_bytes(Sizes& sizes) {
  for (auto& [role, of_role] : sizes.roles) of_role.stored_bytes = 0;
  sizes.pool.stored_bytes = sizes.overhead_bytes = sizes.total.stored_bytes = 0;
}

Result<Sizes> measure_checkpoint(const Store& store, const Checkpoint& info) {
  if (info.damage && info.shards == 0) return tl::unexpected(*info.damage);
  std::vector<std::pair<SnapshotId, Sizes>> shards;
  std::uint64_t stored_bytes = 0;
  for (std::uint32_t shard = 0; shard < info.shards; ++shard) {
    BITSNAP_ASSIGN(auto snapshot, store.snapshot(info.step, shard, true));
    BITSNAP_ASSIGN(auto measured, measure_sizes(*snapshot));
    stored_bytes += measured.total.stored_bytes;
    shards.emplace_back(snapshot->id(), std::move(measured));
  }
  Sizes sizes;
  std::set<SnapshotId> counted;
  for (auto& [id, measured] : shards) {
    const bool is_shared = info.stored_bytes < stored_bytes && !counted.insert(id).second;
    if (is_shared) drop_stored_bytes(measured);
    sizes += measured;
  }
  // The commit record, which belongs to no shard.
  sizes.overhead_bytes += info.stored_bytes - std::min(info.stored_bytes, sizes.total.stored_bytes);
  sizes.total.stored_bytes = info.stored_bytes;
  return sizes;
}

// One entry per checkpoint, by step. Damaged checkpoints are entries, too; fails only at an interrupt.
Result<std::vector<CheckpointSizes>> measure_run(const Store& store, ProgressBar& bar) {
  BITSNAP_ASSIGN(auto checkpoints, store.checkpoints());
  std::vector<CheckpointSizes> sizes;
  for (const Checkpoint& info : checkpoints) {
    if (!bar.update(sizes.size(), checkpoints.size())) return fail(ErrorKind::cancelled, "interrupted");
    auto measured = measure_checkpoint(store, info);
    sizes.push_back({measured ? *measured : Sizes{}, info.step,
                     measured ? std::nullopt : std::optional(std::move(measured).error())});
  }
  return sizes;
}

void add_sizes(Json& document, const Sizes& sizes) {
  document["raw_bytes"] = sizes.total.raw_bytes;
  document["stored_bytes"] = sizes.total.stored_bytes;
  document["ratio"] = ratio_json(sizes.total.raw_bytes, sizes.total.stored_bytes);
  document["roles"] = roles_json(sizes.roles);
  document["pool"] = sizes.pool;
  document["index_bytes"] = sizes.overhead_bytes;
}

Json report_json(const DuOptions& options, const DuReport& report) {
  Json document = {{"run", options.run}, {"checkpoints", report.checkpoints.size()}};
  add_sizes(document, report.total);
  document["steps"] = Json::array();
  for (const CheckpointSizes& checkpoint : report.checkpoints) {
    Json& step = document["steps"].emplace_back(Json{{"step", checkpoint.step}});
    if (checkpoint.damage) {
      step["damage"] = checkpoint.damage;
    } else {
      add_sizes(step, checkpoint);
    }
  }
  document["needed"] = report.needed;
  document["prune"] = report.pruning;
  document["branches"] = report.branches;
  if (report.month) document["month"] = to_json(*report.month);
  return document;
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
  if (with_pool) columns.push_back({"(pool)", Align::right, Narrow::never, spare++});
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
    if (with_pool) row.push_back(format_size(checkpoint.pool.stored_bytes));
    row.push_back(format_size(checkpoint.overhead_bytes));
    table.add_row(std::move(row));
  }
  return table.render(width);
}

std::string render(const DuReport& report, const CommonOptions& common) {
  std::string out = render_roles(report.total, common.table_width(), report.needed_bytes);
  const std::size_t steps = report.checkpoints.size();
  if (steps > kMostSteps && !common.verbose) {
    out += fmt::format("\n{}; -v shows each\n", format_plural(steps, "checkpoint"));
  } else if (steps > 0) {
    out += '\n' + render_steps(report, common.table_width());
  }
  out += render_needed(report.needed, report.first_own);
  for (const CheckpointSizes& checkpoint : report.checkpoints) {
    if (checkpoint.damage) {
      out += fmt::format("step {} [{}]: {}\n", checkpoint.step, error_kind_name(checkpoint.damage->kind()),
                         printable(checkpoint.damage->message()));
    }
  }
  if (!report.branches.empty()) {
    out += "\nbesides the run:\n" + render_branches(report.branches, "", common.table_width());
  }
  if (report.month) out += '\n' + render(*report.month);
  if (report.pruning) {
    out += '\n' + (common.verbose || steps <= kMostSteps ? render_pruning(*report.pruning, report.first_own)
                                                         : render_pruning_sum(*report.pruning, report.first_own));
  }
  return out;
}

Result<PruneReport> foresee_pruning(Store& store, const Retention& retention) {
  PruneOptions options;
  options.dry_run = true;
  return store.prune(retention, options);
}

void find_needed(Store& store, DuReport& report) {
  if (auto usage = store.usage()) {  // fails if a damage, which is shown, hides who needs what
    report.needed = std::move(usage->needed);
    report.needed_bytes = usage->needed_bytes;
  }
  report.total.total.stored_bytes += report.needed_bytes;
}

Result<int> du(const DuOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto store, open_to_read(options.run));
  DuReport report;
  {
    ProgressBar bar(run_name(options.run), !common.quiet, ProgressBar::Unit::share);
    BITSNAP_ASSIGN(report.checkpoints, measure_run(*store, bar));
  }
  for (const CheckpointSizes& checkpoint : report.checkpoints) report.total += checkpoint;
  find_needed(*store, report);
  report.first_own = first_own_step(*store);
  if (run_of_branch(store->path()) == store->path()) {
    BITSNAP_ASSIGN(report.branches, store->branches());
  }
  if (is_object_path(options.run)) {
    BucketPrices prices;
    if (!options.prices.empty()) prices = {options.prices[0], options.prices[1], options.prices[2]};
    BITSNAP_ASSIGN(const std::vector<Checkpoint> checkpoints, store->checkpoints());
    report.month = month_in_bucket(checkpoints, report.total.total.stored_bytes, prices);
  }
  if (is_given(options.retention)) {
    BITSNAP_ASSIGN(report.pruning, foresee_pruning(*store, options.retention));
  }
  if (common.json) {
    print_json(report_json(options, report));
  } else {
    print_result(render(report, common));
  }
  return kExitOk;
}

}  // namespace

Command add_du(CLI::App& program, const CommonOptions& common) {
  auto [app, options] =
      new_command<DuOptions>(program, kRunsGroup, "du", "Show the bytes of a run by role and by step");
  add_argument(*app, "RUN", options->run, "The directory of the run");
  add_keep_options(*app, options->retention);
  add_keep_steps_option(*app, options->retention);
  app->add_option("--prices", options->prices,
                  "Of the bucket, in dollars: a GB for a month, a thousand writing requests, "
                  "a thousand others; default: 0.023,0.005,0.0004")
      ->type_name("GB,WRITES,READS")
      ->delimiter(',')
      ->expected(3)
      ->check([](const std::string& text) {
        double price = 0;
        return CLI::detail::lexical_cast(text, price) && price >= 0 && std::isfinite(price)
                   ? std::string()
                   : fmt::format("expected a number of dollars, found '{}'", text);
      });
  app->footer(fmt::format(
      "With a --keep option, also prints what `prune` would free with it.\n"
      "For more than {} checkpoints only sums are shown; -v and --json show each.\n"
      "Branches of the run are listed with the bytes that they share with no other.\n"
      "Of a run in an object store, a month's price is shown: of the bytes, and of the requests of a training\n"
      "that saves as often as it does now.",
      kMostSteps));
  return {app, [options, &common] { return du(*options, common); }};
}

}  // namespace bitsnap::cli
