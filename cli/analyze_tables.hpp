// The tables of `analyze`, each with a line above it that explains its numbers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/analyze_report.hpp"
#include "cli/table.hpp"

namespace bitsnap::cli {

// In cells without a value.
inline constexpr std::string_view kNone = "-";

// Width of the terminal; nullopt: unlimited.
using Width = std::optional<std::size_t>;

// "2.56"
[[nodiscard]] std::string format_bits(double bits);
[[nodiscard]] std::string format_bits(const std::optional<double>& bits);
[[nodiscard]] std::string format_bits(const std::optional<BestCodec>& best);
// "2.68 7.97"
[[nodiscard]] std::string format_list(const std::vector<double>& bits);

// Two significant digits: "3.1 %", "0.0024 %".
[[nodiscard]] std::string format_error(double error);

// The table with its title, or an empty string if it has no rows.
[[nodiscard]] std::string titled(std::string_view title, const Table& table, Width width);

// Titles of the rows or columns of a state's groups, in the order of the groups.
using GroupTitles = std::vector<std::string>;

// analyze_coder_tables.cpp
[[nodiscard]] std::string render_coders(const StateReport& report, const GroupTitles& titles, Width width);
[[nodiscard]] std::string render_quantizers(const StateReport& report, const GroupTitles& titles, Width width);

// How states change, role by role.
[[nodiscard]] std::string render_steps(const std::vector<StateReport>& reports, Width width);

}  // namespace bitsnap::cli
