// Options of how codecs are chosen.
#include "cli/coding_options.hpp"

#include <fmt/format.h>

#include "cli/number_option.hpp"

namespace bitsnap::cli {

std::optional<std::uint64_t> parse_speed(std::string_view text) noexcept {
  constexpr std::uint64_t kMost = 1'000'000'000'000;
  std::uint64_t unit = 1;
  if (text.ends_with('M')) unit = 1'000'000;
  if (text.ends_with('G')) unit = 1'000'000'000;
  if (text.ends_with('T')) unit = kMost;
  if (unit > 1) {
    text.remove_suffix(1);
  }
  const auto number = parse_decimal(text);
  if (!number || *number > kMost / unit || *number * unit < 1'000'000) {
    return std::nullopt;
  }
  return *number * unit;
}

void add_coding_options(CLI::App& app, CodingOptions& options, std::string_view otherwise) {
  app.add_option_function<std::string>(
         "--objective", [&options](const std::string& text) { options.objective = objective_from_name(text); },
         fmt::format("What a codec is chosen for. ratio: least bytes; balanced: least time, writing at 2 GB/s and now "
                     "and then reading back; speed: the same for a store of 20 GB/s that is read as often as written; "
                     "{}",
                     otherwise))
      ->type_name("OBJECTIVE")
      ->check(CLI::IsMember({"ratio", "balanced", "speed"}).description(""));
  app.add_option_function<std::string>(
         "--store-speed",
         [&options](const std::string& text) {
           options.store_bytes_per_second = parse_speed(text);
           if (!options.store_bytes_per_second) {
             throw CLI::ValidationError("--store-speed",
                                        fmt::format("'{}' is not a speed from 1M to 1T, as 200M, 2G or 20G", text));
           }
         },
         "The store's bytes per second that the objective counts on")
      ->type_name("SPEED");
  app.add_option("--codec", options.codec, "Force this codec for every chunk that it takes; raw for the others")
      ->type_name("CODEC");
}

}  // namespace bitsnap::cli
