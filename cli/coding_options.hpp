// How a state is coded, as options of the commands that store something: one option for each row of the table of
// settings, short forms of loss rules, and the numbers of Adam, which nobody guesses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include <bitsnap/quantization.hpp>
#include <bitsnap/settings.hpp>
#include <bitsnap/writer.hpp>

#include "cli/command.hpp"

namespace bitsnap::cli {

struct AdamOptions {
  std::optional<std::pair<double, double>> betas;
  std::optional<double> eps;
  std::optional<std::uint64_t> step;
};

// --betas, --eps and --adam-step, which must outlive the parsing. `betas` and `step` say what they are for.
void add_adam_options(CLI::App& app, AdamOptions& options, const std::string& group, const std::string& betas,
                      const std::string& step);

// nullopt where none of them is given; invalid_argument where some are, and which are missing. `step` stands in for
// --adam-step where it is not given.
[[nodiscard]] Result<std::optional<AdamNumbers>> adam_of(const AdamOptions& options,
                                                         std::optional<std::uint64_t> step = std::nullopt);

struct CodingOptions {
  CodingSettings settings;
  AdamOptions adam;
};

// For `file` there is no --base, as a single file has no rule for choosing one, and help shows defaults.
enum class CodingTarget : std::uint8_t { file, run };

// Adds the options of all settings, --master-bits, --v-bits and --update-step, and Adam's numbers. `options` must
// outlive the parsing.
void add_coding_options(CLI::App& app, CodingOptions& options, CodingTarget target);

// "lossless for balanced", or "raw" if the policy has no objective.
[[nodiscard]] std::string describe_policy(const CodingSettings& settings);
// The keys `policy` and `objective`, which is null if the policy has none.
void add_policy(Json& document, const CodingSettings& settings);

// "IN : 148 MB -> 118 MB  (1.249x, 115 MB/s)  "
[[nodiscard]] std::string describe_stored(const std::string& input, std::uint64_t input_bytes,
                                          std::uint64_t stored_bytes, double seconds);

// Warns about each rule that fits no tensor of the state: its pattern may have a typing error.
void warn_of_idle_rules(const CodingSettings& settings, const State& state);

// Adds the options that give Adam's numbers to an error that needs them.
[[nodiscard]] Error explain_adam(Error error);

}  // namespace bitsnap::cli
