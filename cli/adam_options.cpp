// Options of Adam's numbers.
#include "cli/adam_options.hpp"

#include <charconv>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/error_macros.hpp"
#include "cli/number_option.hpp"

namespace bitsnap::cli {

namespace {

std::optional<double> parse_number(std::string_view text) noexcept {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::pair<double, double> parse_betas(const std::string& text) {
  const std::size_t comma = text.find(',');
  const auto first = parse_number(std::string_view(text).substr(0, comma));
  const auto second =
      comma == std::string::npos ? std::nullopt : parse_number(std::string_view(text).substr(comma + 1));
  if (!first || !second) {
    throw CLI::ValidationError("--betas", fmt::format("'{}' is not two numbers, as 0.9,0.95", text));
  }
  return {*first, *second};
}

}  // namespace

void add_adam_options(CLI::App& app, AdamOptions& options, const std::string& group, const std::string& betas,
                      const std::string& step) {
  app.add_option_function<std::string>(
         "--betas", [&options](const std::string& text) { options.betas = parse_betas(text); }, betas)
      ->type_name("B1,B2")
      ->group(group);
  app.add_option_function<std::string>(
         "--eps",
         [&options](const std::string& text) {
           options.epsilon = parse_number(text);
           if (!options.epsilon) throw CLI::ValidationError("--eps", fmt::format("'{}' is not a number", text));
         },
         "Epsilon of Adam")
      ->type_name("E")
      ->group(group);
  add_number_option(app, "--adam-step", options.step, 0, step)->group(group);
}

Result<std::optional<AdamNumbers>> adam_of(const AdamOptions& options, std::optional<std::uint64_t> step) {
  if (!options.betas && !options.epsilon && !options.step) return std::optional<AdamNumbers>();
  const std::optional<std::uint64_t> taken = options.step ? options.step : step;
  std::vector<std::string_view> missing;
  if (!options.betas) missing.emplace_back("--betas");
  if (!options.epsilon) missing.emplace_back("--eps");
  if (!taken) missing.emplace_back("--adam-step");
  if (!missing.empty()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("--betas, --eps and --adam-step belong together; {} missing", fmt::join(missing, " and ")));
  }
  return AdamNumbers{
      .beta1 = options.betas->first, .beta2 = options.betas->second, .epsilon = *options.epsilon, .step = *taken};
}

}  // namespace bitsnap::cli
