// The --keep options of several commands, and the report of a pruning as text and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// --keep-last and --keep-every. `retention` must outlive the parsing.
void add_keep_options(CLI::App& app, Retention& retention);

// --keep, which names steps.
void add_keep_steps_option(CLI::App& app, Retention& retention);

// Whether any --keep option is given. Pruning without one would remove all checkpoints but the newest.
[[nodiscard]] bool is_given(const Retention& retention) noexcept;

// The step with which a branch begins; 0 if the store is no branch. Files of steps before it may be in the branch, and
// were never its checkpoints.
[[nodiscard]] std::uint64_t first_own_step(const Store& store);

// "step 500 was pruned, but step 510 needs it (12 MB)", a line for each; with `some`, of five at most. `first_own`: as
// first_own_step() returns it.
[[nodiscard]] std::string render_needed(const std::vector<PruneReport::Needed>& needed, std::uint64_t first_own,
                                        bool some = false);

// From a dry run: what a pruning frees at most, and why not more.
[[nodiscard]] std::string render_outlook(const PruneReport& report);

// One line per checkpoint that is removed, rewritten or needed, and one with the sum.
[[nodiscard]] std::string render_pruning(const PruneReport& report, std::uint64_t first_own);
// The last of these lines alone.
[[nodiscard]] std::string render_pruning_sum(const PruneReport& report, std::uint64_t first_own);

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const PruneReport& report);
void to_json(cli::Json& json, const PruneReport::Needed& needed);

}  // namespace bitsnap
