// Options of how a state is coded.
#include "cli/coding_options.hpp"

#include <algorithm>
#include <limits>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/number_option.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

constexpr const char* kLossGroup = "Loss (nothing is lost unless it is asked for)";

// A whole number with an optional unit, a power of 1000: "8", "200M", "2G".
std::optional<std::uint64_t> parse_count(std::string_view text) noexcept {
  std::uint64_t unit = 1;
  if (text.ends_with('K')) unit = 1'000;
  if (text.ends_with('M')) unit = 1'000'000;
  if (text.ends_with('G')) unit = 1'000'000'000;
  if (text.ends_with('T')) unit = 1'000'000'000'000;
  if (unit > 1) text.remove_suffix(1);
  const auto number = parse_decimal(text);
  if (!number || *number > std::numeric_limits<std::uint64_t>::max() / unit) return std::nullopt;
  return *number * unit;
}

void set_or_throw(CodingSettings& settings, const std::string& option, const SettingField& field,
                  const SettingValue& value) {
  if (Result<void> set = field.set(field, settings, value); !set) {
    throw CLI::ValidationError(option, set.error().message());
  }
}

// Rules of several options add up, in the order of the command line.
void add_rule(CodingSettings& settings, const std::string& option, const std::string& text) {
  const SettingField& field = *find_setting("loss");
  std::vector<std::string> rules;
  if (const auto value = field.get(settings)) rules = std::get<std::vector<std::string>>(*value);
  rules.push_back(text);
  set_or_throw(settings, option, field, rules);
}

void set_from_text(CodingSettings& settings, const std::string& option, const SettingField& field,
                   const std::string& text) {
  if (field.kind == SettingKind::number) {
    const auto number = parse_count(text);
    if (!number) throw wrong_value(option, "a number, such as 8 or 200M", text);
    return set_or_throw(settings, option, field, *number);
  }
  set_or_throw(settings, option, field, text);
}

std::string option_name(const SettingField& field) {
  std::string name(field.name);
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

std::string describe_default(const SettingField& field) {
  const auto value = field.get(default_settings());
  if (!value) return {};
  const auto* number = std::get_if<std::uint64_t>(&*value);
  return fmt::format(" [{}]", number != nullptr ? fmt::format("{}", *number) : std::get<std::string>(*value));
}

void add_loss_options(CLI::App& app, CodingOptions& options, const SettingField& loss) {
  app.add_option_function<std::vector<std::string>>(
         "--loss",
         [&options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) add_rule(options.settings, "--loss", text);
         },
         std::string(loss.help))
      ->type_name(std::string(loss.metavar))
      ->allow_extra_args(false)
      ->group(kLossGroup);
  const auto add_short = [&](const std::string& name, const std::string& rule, const char* metavar, const char* help) {
    app.add_option_function<std::string>(
           name, [&options, name, rule](const std::string& text) { add_rule(options.settings, name, rule + text); },
           help)
        ->type_name(metavar)
        ->group(kLossGroup);
  };
  add_short("--master-bits", "master=master_bits:", "N",
            "Mantissa bits that masters keep beyond those of their weights, 0 to 15; 8 in the policy bounded");
  add_short("--v-bits", "exp_avg_sq=mantissa_bits:", "N",
            "Mantissa bits that second moments keep, 0 to 22; 3 in the policy bounded");
  add_short("--update-step", "exp_avg=update_step:", "X",
            "Fraction of the update that first moments become multiples of; 0.02 in the policy bounded");
  add_adam_options(app, options.adam, kLossGroup,
                   "Adam's betas, which an update step needs, with --eps and --adam-step",
                   "Steps that Adam has taken, as its state counts them");
}

std::pair<double, double> parse_betas(const std::string& text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto first = parse_real(std::string_view(text).substr(0, comma));
  const auto second = parse_real(std::string_view(text).substr(std::min(comma + 1, text.size())));
  if (!first || !second) throw wrong_value("--betas", "two numbers, such as 0.9,0.95", text);
  return {*first, *second};
}

}  // namespace

void add_adam_options(CLI::App& app, AdamOptions& options, const std::string& group, const std::string& betas,
                      const std::string& step) {
  app.add_option_function<std::string>(
         "--betas", [&options](const std::string& text) { options.betas = parse_betas(text); }, betas)
      ->type_name("B1,B2")
      ->group(group);
  // Not by CLI11, which rounds to long double first: Adam's values are stored and take part in update steps.
  app.add_option_function<std::string>(
         "--eps",
         [&options](const std::string& text) {
           options.eps = parse_real(text);
           if (!options.eps) throw wrong_value("--eps", "a number", text);
         },
         "Epsilon of Adam")
      ->type_name("E")
      ->group(group);
  add_number_option(app, "--adam-step", options.step, 0, step)->group(group);
}

Result<std::optional<AdamNumbers>> adam_of(const AdamOptions& options, std::optional<std::uint64_t> step) {
  if (!options.betas && !options.eps && !options.step) return std::optional<AdamNumbers>();
  const std::optional<std::uint64_t> taken = options.step ? options.step : step;
  std::vector<std::string_view> missing;
  if (!options.betas) missing.emplace_back("--betas");
  if (!options.eps) missing.emplace_back("--eps");
  if (!taken) missing.emplace_back("--adam-step");
  if (!missing.empty()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("--betas, --eps and --adam-step belong together; {} missing", fmt::join(missing, " and ")));
  }
  return AdamNumbers{
      .beta1 = options.betas->first, .beta2 = options.betas->second, .eps = *options.eps, .step = *taken};
}

void add_coding_options(CLI::App& app, CodingOptions& options, CodingTarget target) {
  for (const SettingField& field : setting_fields()) {
    if (field.kind == SettingKind::rules) {
      add_loss_options(app, options, field);
      continue;
    }
    const bool is_for_file = target == CodingTarget::file;
    if (is_for_file && field.name == "base") continue;
    const std::string option = option_name(field);
    app.add_option_function<std::string>(
           option,
           [&options, &field, option](const std::string& text) {
             set_from_text(options.settings, option, field, text);
           },
           std::string(field.help) + (is_for_file ? describe_default(field) : ""))
        ->type_name(std::string(field.metavar));
  }
}

std::string describe_policy(const CodingSettings& settings) {
  return fmt::format(
      "{}{}", policy_name(*settings.policy),
      chooses_by_objective(*settings.policy) ? fmt::format(" for {}", objective_name(*settings.objective)) : "");
}

void add_policy(Json& document, const CodingSettings& settings) {
  document["policy"] = policy_name(*settings.policy);
  document["objective"] = chooses_by_objective(*settings.policy) ? Json(objective_name(*settings.objective)) : Json();
}

std::string describe_stored(const std::string& input, std::uint64_t input_bytes, std::uint64_t stored_bytes,
                            double seconds) {
  return fmt::format("{} : {} -> {}  ({}, {})  ", printable(input), format_size(input_bytes), format_size(stored_bytes),
                     format_ratio(input_bytes, stored_bytes), format_speed(input_bytes, seconds));
}

void warn_of_idle_rules(const CodingSettings& settings, const State& state) {
  for (const LossRule& rule : settings.loss.value_or(std::vector<LossRule>())) {
    const auto is_for = [&](const TensorSource& tensor) { return fits(rule, tensor.info.role, tensor.info.name); };
    if (std::ranges::any_of(state.tensors, is_for)) continue;
    print_warning(fmt::format("the rule {} fits no tensor", printable(format_loss_rule(rule))),
                  error_kind_name(ErrorKind::not_found));
  }
}

Error explain_adam(Error error) {
  if (error.code() != ErrorCode::adam_needed) return error;
  return {error.kind(), error.message() + "; give them as in --betas 0.9,0.95 --eps 1e-8 --adam-step 1000"};
}

}  // namespace bitsnap::cli
