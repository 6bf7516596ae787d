// Options that take decimal numbers. CLI11 alone reads "010", the form of step 10 in the folders of a run, as octal,
// and accepts "nan" as a time. What is no such number is a usage error: "--steps must be a whole number of at least 1,
// got '0'".
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace bitsnap::cli {

// Digits only, at most 2^64 - 1.
[[nodiscard]] std::optional<std::uint64_t> parse_decimal(std::string_view text) noexcept;
// As std::from_chars() reads it, all of the text.
[[nodiscard]] std::optional<double> parse_real(std::string_view text) noexcept;

// "--steps must be a whole number, got 'many'". `names` as in CLI11: "-T,--threads"; the last one is said.
[[nodiscard]] CLI::ValidationError wrong_value(std::string_view names, std::string_view expected,
                                               std::string_view text);

// `value` must outlive the parsing.
CLI::Option* add_number_option(CLI::App& app, const std::string& names, std::optional<std::uint64_t>& value,
                               std::uint64_t least, const std::string& description);

// A number within bounds; `set` is called with it.
CLI::Option* add_number_option(CLI::App& app, const std::string& names, std::uint64_t least, std::uint64_t most,
                               const std::function<void(std::uint64_t)>& set, const std::string& description);

// A number within bounds, with or without a fraction; `set` is called with it.
CLI::Option* add_real_option(CLI::App& app, const std::string& names, double least, double most,
                             const std::function<void(double)>& set, const std::string& description);

// A time in seconds: "5", "0.5". At most `most`; rounded up to milliseconds.
CLI::Option* add_seconds_option(CLI::App& app, const std::string& names, std::chrono::milliseconds& value,
                                std::chrono::seconds most, const std::string& description);

// Several, separated by commas; given again, they add up.
CLI::Option* add_numbers_option(CLI::App& app, const std::string& names, std::vector<std::uint64_t>& values,
                                const std::string& description);

}  // namespace bitsnap::cli
