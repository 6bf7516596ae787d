// Parses, checks and finds loss rules.
#include "quantize/loss_rules.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/try.hpp"
#include "tensor/quantization_amounts.hpp"

namespace bitsnap {
namespace {

constexpr std::string_view kForm =
    "expected ROLE[:PATTERN]=WHAT, with a role or *, and exact, mantissa_bits:N, master_bits:N, update_step:X or "
    "clusters:N, as in exp_avg_sq:*.embed*=mantissa_bits:5";

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Error bad_rule(std::string_view text, std::string_view why) {
  return {ErrorKind::invalid_argument, fmt::format("rule '{}': {}", text, why)};
}

}  // namespace

Result<LossRule> parse_loss_rule(std::string_view text) {
  const std::size_t equals = text.rfind('=');  // a name may contain '='
  if (equals == std::string_view::npos) return tl::unexpected(bad_rule(text, kForm));
  const std::string_view which = text.substr(0, equals);
  const std::string_view what = text.substr(equals + 1);
  LossRule rule;
  const std::size_t colon = which.find(':');
  const std::string_view role = which.substr(0, colon);
  if (role != "*") {
    rule.role = role_from_name(role);
    if (!rule.role) return tl::unexpected(bad_rule(text, kForm));
  }
  if (colon != std::string_view::npos) rule.name = which.substr(colon + 1);

  const std::size_t second = what.find(':');
  const std::string_view name = what.substr(0, second);
  const std::optional<Quantization> found = quantization_from_name(name);
  if (!found || (*found == Quantization::exact) != (second == std::string_view::npos)) {
    return tl::unexpected(bad_rule(text, kForm));
  }
  rule.quantization = *found;
  if (second != std::string_view::npos) {
    const auto amount = number_of(what.substr(second + 1));
    if (!amount) return tl::unexpected(bad_rule(text, kForm));
    rule.amount = *amount;
  }
  if (auto checked = quantize::check_rule(rule); !checked) {
    return tl::unexpected(bad_rule(text, checked.error().message()));
  }
  return rule;
}

std::string format_loss_rule(const LossRule& rule) {
  std::string text(rule.role ? role_name(*rule.role) : "*");
  if (rule.name != "*") text += ":" + rule.name;
  text += fmt::format("={}", quantization_name(rule.quantization));
  if (rule.quantization != Quantization::exact) text += fmt::format(":{}", rule.amount);
  return text;
}

bool fits(const LossRule& rule, Role role, std::string_view name) noexcept {
  return (!rule.role || *rule.role == role) && quantize::matches_pattern(name, rule.name);
}

namespace quantize {
namespace {

const std::array<LossRule, 3> kBounded{
    LossRule{.role = Role::master, .quantization = Quantization::master_bits, .amount = 8},
    LossRule{.role = Role::exp_avg_sq, .quantization = Quantization::mantissa_bits, .amount = 3},
    LossRule{.role = Role::exp_avg, .quantization = Quantization::update_step, .amount = 0.02}};

const std::array<LossRule, 2> kBitsnap{
    LossRule{.role = Role::exp_avg, .quantization = Quantization::clusters, .amount = 16},
    LossRule{.role = Role::exp_avg_sq, .quantization = Quantization::clusters, .amount = 16}};

std::string expected_amount(Quantization quantization) {
  switch (quantization) {
    case Quantization::mantissa_bits: return fmt::format("an integer from 0 to {}", tensor::kMostMantissaBits);
    case Quantization::master_bits: return fmt::format("an integer from 0 to {}", tensor::kMostMasterBits);
    case Quantization::update_step: return "a number above 0 and at most 1";
    case Quantization::clusters: return "16 or 256";
    case Quantization::exact: break;
  }
  return "none";
}

}  // namespace

std::span<const LossRule> preset_rules(Policy policy) noexcept {
  if (policy == Policy::bounded) return kBounded;
  if (policy == Policy::bitsnap) return kBitsnap;
  return {};
}

Result<void> check_rule(const LossRule& rule) {
  if (!tensor::is_amount_of(rule.quantization, rule.amount)) {
    return fail(ErrorKind::invalid_argument, fmt::format("{} must be {}, got {}", quantization_name(rule.quantization),
                                                         expected_amount(rule.quantization), rule.amount));
  }
  if (rule.quantization == Quantization::update_step && rule.role && *rule.role != Role::exp_avg) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("update_step applies to first moments (exp_avg), not to {}", role_name(*rule.role)));
  }
  return {};
}

const LossRule* find_rule(Role role, std::string_view name, std::span<const LossRule> rules,
                          std::span<const LossRule> preset) noexcept {
  for (const auto& some : {rules, preset}) {
    for (const LossRule& rule : some) {
      if (fits(rule, role, name)) return &rule;
    }
  }
  return nullptr;
}

// Each * matches as little as possible, and more if the rest does not match.
bool matches_pattern(std::string_view text, std::string_view pattern) noexcept {
  std::size_t at = 0;
  std::size_t in_pattern = 0;
  std::size_t star = std::string_view::npos;  // the last one found
  std::size_t after_star = 0;                 // where the match of the rest of the pattern began
  while (at < text.size()) {
    if (in_pattern < pattern.size() && pattern[in_pattern] == '*') {
      star = in_pattern++;
      after_star = at;
    } else if (in_pattern < pattern.size() && (pattern[in_pattern] == '?' || pattern[in_pattern] == text[at])) {
      ++in_pattern;
      ++at;
    } else if (star != std::string_view::npos) {
      in_pattern = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  while (in_pattern < pattern.size() && pattern[in_pattern] == '*') ++in_pattern;
  return in_pattern == pattern.size();
}

}  // namespace quantize
}  // namespace bitsnap
