// Numbers in the tables of `analyze`.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/analysis.hpp>

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

// As format_share(): "37.4 %", "<0.1 %". `sign` is empty if the heading has it.
[[nodiscard]] std::string format_percent(double share, std::string_view sign = " %");

// Two significant digits: "3.1 %", "0.0024 %".
[[nodiscard]] std::string format_error(double error);

// The table with its title, or an empty string if it has no rows.
[[nodiscard]] std::string titled(std::string_view title, const Table& table, Width width);

}  // namespace bitsnap::cli
