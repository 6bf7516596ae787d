// Which checkpoints are to stay, as options of several commands, and what pruning by them did.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

// One line for each checkpoint that does not simply stay, and one with the sum.
[[nodiscard]] std::string render_pruning(const PruneReport& report, bool dry_run);
// The last of these lines alone.
[[nodiscard]] std::string render_pruning_sum(const PruneReport& report, bool dry_run);
[[nodiscard]] Json to_json(const PruneReport& report, bool dry_run);

}  // namespace bitsnap::cli
