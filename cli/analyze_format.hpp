// How the tables of `analyze` write their numbers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/analysis.hpp>

#include "cli/table.hpp"

namespace bitsnap::cli {

// In cells of what is not there.
inline constexpr std::string_view kNone = "-";

// Of the terminal.
using Width = std::optional<std::size_t>;

// "2.56"
[[nodiscard]] std::string format_bits(double bits);
[[nodiscard]] std::string format_bits(const std::optional<double>& bits);
[[nodiscard]] std::string format_bits(const std::optional<BestCodec>& best);
// "2.68 7.97"
[[nodiscard]] std::string format_list(const std::vector<double>& bits);

// As format_share has it: "37.4 %", "<0.1 %". Without the sign where the heading has it.
[[nodiscard]] std::string format_percent(double share, std::string_view sign = " %");

// Two digits that count, whatever the size: "3.1 %", "0.0024 %".
[[nodiscard]] std::string format_error(double error);

// Nothing of a table without rows.
[[nodiscard]] std::string titled(std::string_view title, const Table& table, Width width);

}  // namespace bitsnap::cli
