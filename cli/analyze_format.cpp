// Numbers in the tables of `analyze`.
#include "cli/analyze_format.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace bitsnap::cli {

std::string format_bits(double bits) { return fmt::format("{:.2f}", bits); }

std::string format_bits(const std::optional<double>& bits) { return bits ? format_bits(*bits) : std::string(kNone); }

std::string format_bits(const std::optional<BestCodec>& best) {
  return best ? format_bits(best->bits) : std::string(kNone);
}

std::string format_percent(double share, std::string_view sign) {
  if (share <= 0) {
    return fmt::format("0{}", sign);
  }
  if (share >= 1) {
    return fmt::format("100{}", sign);
  }
  if (share < 0.0005) {
    return fmt::format("<0.1{}", sign);
  }
  return share > 0.999 ? fmt::format(">99.9{}", sign) : fmt::format("{:.1f}{}", 100 * share, sign);
}

std::string format_error(double error) {
  if (error == 0) {
    return "0";
  }
  const double percent = 100 * error;
  if (percent < 1e-4 || percent >= 1000) {
    return fmt::format("{:.1e}", error);
  }
  const int digits = std::max(0, 1 - static_cast<int>(std::floor(std::log10(percent))));
  return fmt::format("{:.{}f} %", percent, digits);
}

std::string format_list(const std::vector<double>& bits) {
  std::string text;
  for (const double plane : bits) {
    text += fmt::format("{}{:.2f}", text.empty() ? "" : " ", plane);
  }
  return text;
}

std::string titled(std::string_view title, const Table& table, Width width) {
  return table.empty() ? "" : fmt::format("\n{}\n{}", title, table.render(width));
}

}  // namespace bitsnap::cli
