// The branches of a run as a drawn tree and as JSON.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/branch.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

// A table whose first column is the tree below the branch `of`, or below the run if that is empty. Branches whose
// origin was removed or is unknown lie below the run. Empty if there are none.
[[nodiscard]] std::string render_branches(const std::vector<Branch>& branches, const std::string& of,
                                          std::optional<std::size_t> width);

}  // namespace bitsnap::cli

namespace bitsnap {

void to_json(cli::Json& json, const Branch& branch);

}  // namespace bitsnap
