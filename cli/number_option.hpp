// Options that take decimal numbers. CLI11 alone reads "010", the form of step 10 in the folders of a run, as octal,
// and accepts "nan" as a time.
#pragma once

#include <chrono>
#include <cstdint>
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

// `value` must outlive the parsing. A number below `least` is a usage error.
CLI::Option* add_number_option(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                               std::uint64_t least, const std::string& description);

// A time in seconds: "5", "0.5". At most `most`; rounded up to milliseconds.
CLI::Option* add_seconds_option(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                                std::chrono::seconds most, const std::string& description);

// Several, separated by commas; given again, they add up.
CLI::Option* add_numbers_option(CLI::App& app, const std::string& name, std::vector<std::uint64_t>& values,
                                const std::string& description);

}  // namespace bitsnap::cli
