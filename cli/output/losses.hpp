// What tensors lost before they were stored, as text and as JSON.
#pragma once

#include <string>

#include <bitsnap/quantization.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// A table of the bounds and the reached errors: by role and rule, or with -v by tensor. Empty if nothing was lost.
[[nodiscard]] std::string render_losses(const Snapshot& snapshot, const CommonOptions& common);

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const LossReport& report);
void to_json(cli::Json& json, const AdamNumbers& adam);

}  // namespace bitsnap
