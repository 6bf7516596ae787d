// How the codecs are chosen, as options of the commands that store something.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include <bitsnap/writer.hpp>

#include "cli/adam_options.hpp"

namespace bitsnap::cli {

struct CodingOptions {
  std::optional<Objective> objective;
  std::optional<std::uint64_t> store_bytes_per_second;
  std::string codec;  // empty: none is forced
  std::vector<LossRule> loss;
  AdamOptions adam;
};

// --objective, --store-speed, --codec, and what may be lost: --loss and its short forms, and the numbers of Adam. The
// options have to outlive the parsing. `otherwise` says what holds for an objective that is not given.
void add_coding_options(CLI::App& app, CodingOptions& options, std::string_view otherwise);

// Says of each rule that fits no tensor of the state, as one with a slip in its pattern, that it does not.
void warn_of_idle_rules(const CodingOptions& options, const State& state);

// Where nobody said the numbers of Adam that are needed, how to say them here.
[[nodiscard]] Error explain_adam(Error error);

// Bytes per second as people write them: "200M", "2G"; powers of 1000.
[[nodiscard]] std::optional<std::uint64_t> parse_speed(std::string_view text) noexcept;

}  // namespace bitsnap::cli
