// Options that take numbers.
#include "cli/number_option.hpp"

#include <charconv>
#include <cmath>
#include <system_error>

#include <fmt/format.h>

namespace bitsnap::cli {

namespace {

std::uint64_t parse_or_throw(const std::string& name, const std::string& text, std::uint64_t least) {
  const auto number = parse_decimal(text);
  if (!number || *number < least) {
    throw CLI::ValidationError(name, fmt::format("'{}' is not a whole number from {} on", text, least));
  }
  return *number;
}

// Rejects signs, exponents, "nan" and "inf".
std::optional<double> parse_seconds(std::string_view text) noexcept {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  if (text.find_first_not_of("0123456789.") != std::string_view::npos || error != std::errc() || stopped != end) {
    return std::nullopt;
  }
  return seconds;
}

}  // namespace

std::optional<std::uint64_t> parse_decimal(std::string_view text) noexcept {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) {
    return std::nullopt;
  }
  return number;
}

CLI::Option* add_number_option(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                               std::uint64_t least, const std::string& description) {
  return app
      .add_option_function<std::string>(
          name, [name, least, &value](const std::string& text) { value = parse_or_throw(name, text, least); },
          description)
      ->type_name("N");
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
  return app
      .add_option_function<std::vector<std::string>>(
          name,
          [name, &values](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              values.push_back(parse_or_throw(name, text, 0));
            }
          },
          description)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("N,...");
}

}  // namespace bitsnap::cli
