// What tensors lost before they were stored, as text and as JSON.
#pragma once

#include <string>

#include <bitsnap/quantization.hpp>
#include <bitsnap/snapshot.hpp>

#include "cli/common_options.hpp"
#include "cli/output.hpp"

namespace bitsnap::cli {

// A table of the bounds and the reached errors: by role and rule, or with -v by tensor. Empty if nothing was lost.
[[nodiscard]] std::string render_losses(const Snapshot& snapshot, const CommonOptions& common);

[[nodiscard]] Json to_json(const LossReport& report);
[[nodiscard]] Json to_json(const AdamNumbers& adam);

}  // namespace bitsnap::cli
