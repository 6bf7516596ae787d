// Damages of a store as text and as JSON.
#pragma once

#include <span>
#include <string>

#include <bitsnap/store.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// One indented line per damage: file, tensor and chunk, error kind, message.
[[nodiscard]] std::string render_damages(std::span<const StoreDamage> damages);

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const StoreDamage& damage);

}  // namespace bitsnap
