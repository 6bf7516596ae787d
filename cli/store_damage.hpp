// Damages of a store as text and as JSON.
#pragma once

#include <span>
#include <string>

#include <bitsnap/store.hpp>

#include "cli/output.hpp"

namespace bitsnap::cli {

// One indented line per damage: file, tensor and chunk, error kind, message.
[[nodiscard]] std::string render_damages(std::span<const StoreDamage> damages);
[[nodiscard]] Json to_json(std::span<const StoreDamage> damages);

}  // namespace bitsnap::cli
