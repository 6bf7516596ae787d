// How the codecs are chosen, as options of the commands that store something.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <bitsnap/writer.hpp>

namespace bitsnap::cli {

struct CodingOptions {
  std::optional<Objective> objective;
  std::optional<std::uint64_t> store_bytes_per_second;
  std::string codec;  // empty: none is forced
  std::vector<LossRule> loss;
  std::optional<std::pair<double, double>> betas;
  std::optional<double> epsilon;
  std::optional<std::uint64_t> adam_step;
};

// --objective, --store-speed, --codec, and what may be lost: --loss and its short forms, and the numbers of Adam. The
// options have to outlive the parsing. `otherwise` says what holds for an objective that is not given.
void add_coding_options(CLI::App& app, CodingOptions& options, std::string_view otherwise);

// nullopt where none of them is given; invalid_argument where some are, and which are missing.
[[nodiscard]] Result<std::optional<AdamNumbers>> adam_of(const CodingOptions& options);

// Bytes per second as people write them: "200M", "2G"; powers of 1000.
[[nodiscard]] std::optional<std::uint64_t> parse_speed(std::string_view text) noexcept;

}  // namespace bitsnap::cli
