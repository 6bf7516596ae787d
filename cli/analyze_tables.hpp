// The tables of `analyze`, each with a line above it that explains its numbers.
#pragma once

#include <string>
#include <vector>

#include "cli/analyze_format.hpp"
#include "cli/analyze_report.hpp"

namespace bitsnap::cli {

// Titles of the rows or columns of a state's groups, in the order of the groups.
using GroupTitles = std::vector<std::string>;

// analyze_coder_tables.cpp
[[nodiscard]] std::string render_coders(const StateReport& report, const GroupTitles& titles, Width width);
[[nodiscard]] std::string render_quantizers(const StateReport& report, const GroupTitles& titles, Width width);

// analyze_tensor_table.cpp
[[nodiscard]] std::string render_tensors(const StateReport& report, Width width);

// analyze_steps_table.cpp. How states change, role by role.
[[nodiscard]] std::string render_steps(const std::vector<StateReport>& reports, Width width);

}  // namespace bitsnap::cli
