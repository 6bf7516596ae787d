// How a state is coded, as options of the commands that store something: one option for each row of the table of
// settings, and short forms of loss rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>

#include <bitsnap/settings.hpp>
#include <bitsnap/writer.hpp>

#include "cli/adam_options.hpp"

namespace bitsnap::cli {

struct CodingOptions {
  CodingSettings settings;
  AdamOptions adam;
};

// For `file` there is no --base, as a single file has no rule for choosing one, and help shows defaults.
enum class CodingTarget : std::uint8_t { file, run };

// Adds the options of all settings, --master-bits, --v-bits and --update-step, and Adam's numbers. `options` must
// outlive the parsing.
void add_coding_options(CLI::App& app, CodingOptions& options, CodingTarget target);

// Warns about each rule that fits no tensor of the state: its pattern may have a typing error.
void warn_of_idle_rules(const CodingSettings& settings, const State& state);

// Adds the options that give Adam's numbers to an error that needs them.
[[nodiscard]] Error explain_adam(Error error);

// A whole number with an optional unit, a power of 1000: "8", "200M", "2G".
[[nodiscard]] std::optional<std::uint64_t> parse_count(std::string_view text) noexcept;

}  // namespace bitsnap::cli
