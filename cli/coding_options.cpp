// Options of how codecs are chosen.
#include "cli/coding_options.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "cli/number_option.hpp"
#include "cli/output.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr const char* kLossGroup = "Loss (nothing is lost unless it is asked for)";

void add_rule(CodingOptions& options, const std::string& option, const std::string& text) {
  auto rule = parse_loss_rule(text);
  if (!rule) throw CLI::ValidationError(option, rule.error().message());
  options.loss.push_back(std::move(*rule));
}

void add_loss_options(CLI::App& app, CodingOptions& options) {
  app.add_option_function<std::vector<std::string>>(
         "--loss",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) add_rule(options, "--loss", text);
         },
         "What tensors may lose, before what the policy says: ROLE[:PATTERN]=exact, mantissa_bits:N, master_bits:N, "
         "update_step:X or clusters:N; given again, the first that fits a tensor holds, and the short forms come last")
      ->type_name("RULE")
      ->allow_extra_args(false)
      ->group(kLossGroup);
  // A short form is the rule of that role.
  const auto add_short = [&](const std::string& name, const std::string& rule, const char* type,
                             const char* description) {
    app.add_option_function<std::string>(
           name, [&options, name, rule](const std::string& text) { add_rule(options, name, rule + text); }, description)
        ->type_name(type)
        ->group(kLossGroup);
  };
  add_short("--master-bits", "master=master_bits:", "N",
            "Bits that masters keep beyond their weights, 0 to 15; 8 by the policy bounded");
  add_short("--v-bits", "exp_avg_sq=mantissa_bits:", "N",
            "Bits of mantissa that second moments keep, 0 to 22; 3 by the policy bounded");
  add_short("--update-step", "exp_avg=update_step:", "X",
            "Part of the update that first moments become multiples of; 0.02 by the policy bounded");
  add_adam_options(app, options.adam, kLossGroup, "Of Adam, which an update step needs, with --eps and --adam-step",
                   "Steps that Adam has taken, as its state counts them");
}

}  // namespace

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
  add_loss_options(app, options);
  app.add_option("--codec", options.codec, "Force this codec for every chunk that it takes; raw for the others")
      ->type_name("CODEC");
}

void warn_of_idle_rules(const CodingOptions& options, const State& state) {
  for (const LossRule& rule : options.loss) {
    const auto is_for = [&](const TensorSource& tensor) { return fits(rule, tensor.info.role, tensor.info.name); };
    if (std::ranges::any_of(state.tensors, is_for)) continue;
    print_warning(fmt::format("the rule {} fits no tensor", printable(format_loss_rule(rule))),
                  error_kind_name(ErrorKind::not_found));
  }
}

Error explain_adam(Error error) {
  if (error.kind() != ErrorKind::invalid_argument || error.message().find("needs Adam's") == std::string::npos) {
    return error;
  }
  return {error.kind(), error.message() + "; --betas 0.9,0.95 --eps 1e-8 --adam-step 1000 say them"};
}

}  // namespace bitsnap::cli
