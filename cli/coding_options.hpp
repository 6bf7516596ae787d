// How the codecs are chosen, as options of the commands that store something.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include <bitsnap/writer.hpp>

namespace bitsnap::cli {

struct CodingOptions {
  std::optional<Objective> objective;
  std::optional<std::uint64_t> store_bytes_per_second;
  std::string codec;  // empty: none is forced
};

// --objective, --store-speed and --codec. The options have to outlive the parsing. `otherwise` says what holds for an
// objective that is not given.
void add_coding_options(CLI::App& app, CodingOptions& options, std::string_view otherwise);

// Bytes per second as people write them: "200M", "2G"; powers of 1000.
[[nodiscard]] std::optional<std::uint64_t> parse_speed(std::string_view text) noexcept;

}  // namespace bitsnap::cli
