// The numbers of Adam, as options of the commands that have to do with updates: nobody guesses them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include <bitsnap/quantization.hpp>

namespace bitsnap::cli {

struct AdamOptions {
  std::optional<std::pair<double, double>> betas;
  std::optional<double> epsilon;
  std::optional<std::uint64_t> step;
};

// --betas, --eps and --adam-step, which must outlive the parsing. `betas` and `step` say what they are for.
void add_adam_options(CLI::App& app, AdamOptions& options, const std::string& group, const std::string& betas,
                      const std::string& step);

// nullopt where none of them is given; invalid_argument where some are, and which are missing. `step` stands in for
// --adam-step where it is not given.
[[nodiscard]] Result<std::optional<AdamNumbers>> adam_of(const AdamOptions& options,
                                                         std::optional<std::uint64_t> step = std::nullopt);

}  // namespace bitsnap::cli
