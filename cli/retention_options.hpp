// Which checkpoints are to stay, as options of several commands, and what pruning by them did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <bitsnap/store.hpp>

#include "cli/output.hpp"

namespace bitsnap::cli {

// --keep-last and --keep-every. The retention has to outlive the parsing.
void add_keep_options(CLI::App& app, Retention& retention);

// --keep, which names steps.
void add_keep_steps_option(CLI::App& app, Retention& retention);

// Whether any of them was given: pruning by none of them would remove all but the newest.
[[nodiscard]] bool is_given(const Retention& retention) noexcept;

// A report does not tell what this pruning took off the log from what an earlier one did: the steps before it do.
struct Pruning {
  PruneReport report;
  std::vector<std::uint64_t> listed;  // before it, ascending
  bool dry_run = false;
};

[[nodiscard]] Result<Pruning> prune_run(Store& store, const Retention& retention, const PruneOptions& options);

// What is pruned already, and stays as files for others. A checkpoint whose record is damaged may hide some of it.
[[nodiscard]] Result<std::vector<PruneReport::Needed>> find_pruned(Store& store);

// One line for each checkpoint that does not simply stay, and one with the sum.
[[nodiscard]] std::string render_pruning(const Pruning& pruning);
// The last of these lines alone.
[[nodiscard]] std::string render_pruning_sum(const Pruning& pruning);
[[nodiscard]] Json to_json(const Pruning& pruning);

}  // namespace bitsnap::cli
