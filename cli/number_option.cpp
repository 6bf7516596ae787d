// Options that take numbers.
#include "cli/number_option.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

#include <fmt/format.h>

namespace bitsnap::cli {

namespace {

constexpr std::uint64_t kNoMost = std::numeric_limits<std::uint64_t>::max();

std::uint64_t whole_number(std::string_view names, std::uint64_t least, std::uint64_t most, const std::string& text) {
  const auto number = parse_decimal(text);
  if (number && *number >= least && *number <= most) return *number;
  const std::string bounds = most < kNoMost ? fmt::format(" from {} to {}", least, most)
                             : least > 0    ? fmt::format(" of at least {}", least)
                                            : std::string();
  throw wrong_value(names, "a whole number" + bounds, text);
}

// Rejects signs, exponents, "nan" and "inf".
std::optional<double> parse_seconds(std::string_view text) noexcept {
  if (text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  return parse_real(text);
}

template <typename Number>
std::optional<Number> parse_all(std::string_view text) noexcept {
  Number number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

CLI::Option* add_text_option(CLI::App& app, const std::string& names,
                             const std::function<void(const std::string&)>& set, const std::string& description) {
  return app.add_option_function<std::string>(names, set, description);
}

}  // namespace

std::optional<std::uint64_t> parse_decimal(std::string_view text) noexcept { return parse_all<std::uint64_t>(text); }

std::optional<double> parse_real(std::string_view text) noexcept { return parse_all<double>(text); }

CLI::ValidationError wrong_value(std::string_view names, std::string_view expected, std::string_view text) {
  return CLI::ValidationError(
      fmt::format("{} must be {}, got '{}'", names.substr(names.rfind(',') + 1), expected, text));  // npos + 1 is 0
}

CLI::Option* add_number_option(CLI::App& app, const std::string& names, std::optional<std::uint64_t>& value,
                               std::uint64_t least, const std::string& description) {
  return add_number_option(app, names, least, kNoMost, [&value](std::uint64_t number) { value = number; }, description);
}

CLI::Option* add_number_option(CLI::App& app, const std::string& names, std::uint64_t least, std::uint64_t most,
                               const std::function<void(std::uint64_t)>& set, const std::string& description) {
  const auto parse = [=](const std::string& text) { set(whole_number(names, least, most, text)); };
  return add_text_option(app, names, parse, description)->type_name("N");
}

CLI::Option* add_real_option(CLI::App& app, const std::string& names, double least, double most,
                             const std::function<void(double)>& set, const std::string& description) {
  const auto parse = [=](const std::string& text) {
    const auto number = parse_real(text);
    if (!number || !(*number >= least && *number <= most)) {
      throw wrong_value(names, fmt::format("a number from {} to {}", least, most), text);
    }
    set(*number);
  };
  return add_text_option(app, names, parse, description);
}

CLI::Option* add_seconds_option(CLI::App& app, const std::string& names, std::chrono::milliseconds& value,
                                std::chrono::seconds most, const std::string& description) {
  const auto parse = [names, most, &value](const std::string& text) {
    const auto seconds = parse_seconds(text);
    if (!seconds || *seconds > static_cast<double>(most.count())) {
      throw wrong_value(names, fmt::format("a number of seconds from 0 to {}", most.count()), text);
    }
    value = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
  };
  return add_text_option(app, names, parse, description)->type_name("SECONDS");
}

CLI::Option* add_numbers_option(CLI::App& app, const std::string& names, std::vector<std::uint64_t>& values,
                                const std::string& description) {
  const auto parse = [names, &values](const std::vector<std::string>& texts) {
    values.clear();
    for (const std::string& text : texts) values.push_back(whole_number(names, 0, kNoMost, text));
  };
  return app.add_option_function<std::vector<std::string>>(names, parse, description)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("N,...");
}

}  // namespace bitsnap::cli
