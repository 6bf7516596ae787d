// Options that take numbers as people write them: decimal digits, and a point for times, and nothing else. CLI11 alone
// would read "010", which is how the folders of a run name step 10, as octal, and "nan" as a time.
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

// The value has to outlive the parsing. A number below `least` is a wrong command line.
CLI::Option* add_number_option(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                               std::uint64_t least, const std::string& description);

// A time in seconds, whole or not: "5", "0.5". At most `most`; what is below a millisecond is rounded up.
CLI::Option* add_seconds_option(CLI::App& app, const std::string& name, std::chrono::milliseconds& value,
                                std::chrono::seconds most, const std::string& description);

// Several, separated by commas; given again, they add up.
CLI::Option* add_numbers_option(CLI::App& app, const std::string& name, std::vector<std::uint64_t>& values,
                                const std::string& description);

}  // namespace bitsnap::cli
