// Options that take numbers.
#include "cli/number_option.hpp"

#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

namespace bitsnap::cli {

namespace {

// Checks a whole number, and rewrites it so that CLI11 reads it as decimal.
CLI::Validator whole_number(std::uint64_t least) {
  const auto rewrite = [least](std::string& text) -> std::string {
    const auto number = parse_decimal(text);
    if (!number || *number < least) return fmt::format("'{}' is not a whole number from {} on", text, least);
    text = fmt::format("{}", *number);
    return {};
  };
  return {rewrite, ""};
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

}  // namespace

std::optional<std::uint64_t> parse_decimal(std::string_view text) noexcept { return parse_all<std::uint64_t>(text); }

std::optional<double> parse_real(std::string_view text) noexcept { return parse_all<double>(text); }

CLI::Option* add_number_option(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                               std::uint64_t least, const std::string& description) {
  return app.add_option(name, value, description)->transform(whole_number(least))->type_name("N");
}

CLI::Option* add_seconds_option(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                                std::chrono::seconds most, const std::string& description) {
  return app
      .add_option_function<std::string>(
          name,
          [name, most, &value](const std::string& text) {
            const auto seconds = parse_seconds(text);
            if (!seconds || *seconds > static_cast<double>(most.count())) {
              throw CLI::ValidationError(
                  name, fmt::format("'{}' is not a number of seconds from 0 to {}", text, most.count()));
            }
            value = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
          },
          description)
      ->type_name("SECONDS");
}

CLI::Option* add_numbers_option(CLI::App& app, const std::string& name, std::vector<std::uint64_t>& values,
                                const std::string& description) {
  return app.add_option(name, values, description)
      ->transform(whole_number(0))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("N,...");
}

}  // namespace bitsnap::cli
