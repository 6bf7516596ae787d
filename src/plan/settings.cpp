// The table of the settings, and what follows from it.
#include <bitsnap/settings.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/similar_names.hpp"
#include "base/try.hpp"
#include "codec/registry_encode.hpp"
#include "container/layout.hpp"
#include "plan/cost_model.hpp"

namespace bitsnap {
namespace {

static_assert(kLongestChain == container::kMaxDepth / 2);

constexpr std::array<std::string_view, 5> kPolicies{"lossless", "lmc", "bounded", "bitsnap", "raw"};
constexpr std::array<std::string_view, 3> kObjectives{"ratio", "balanced", "speed"};
constexpr std::array<std::string_view, 2> kBaseRules{"previous", "keyframe"};

template <typename Enum>
std::string_view name_in(std::span<const std::string_view> names, Enum value) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : "unknown";
}

template <typename Enum>
std::optional<Enum> value_in(std::span<const std::string_view> names, std::string_view name) noexcept {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

tl::unexpected<Error> refuse(const SettingField& field, std::string_view expected, const SettingValue& value) {
  std::string found;
  if (const auto* number = std::get_if<std::uint64_t>(&value)) found = fmt::format("{}", *number);
  if (const auto* text = std::get_if<std::string>(&value)) found = quote_name(*text);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) found = fmt::format("{}", *list);
  return tl::unexpected(
      Error(ErrorKind::invalid_argument, fmt::format("{} must be {}, got {}", field.name, expected, found))
          .about(field.name));
}

tl::unexpected<Error> refuse_name(const SettingField& field, std::span<const std::string_view> names,
                                  const SettingValue& value) {
  auto refused = refuse(field, fmt::format("one of {}", fmt::join(names, ", ")), value);
  const auto* name = std::get_if<std::string>(&value);
  if (name == nullptr) return refused;
  const auto similar = similar_names({names.begin(), names.end()}, *name);
  if (similar.empty()) return refused;
  const std::string said = fmt::format("{}; did you mean {}?", refused.value().message(), quote_name(similar.front()));
  return tl::unexpected(Error(ErrorKind::invalid_argument, said).about(field.name));
}

// The kinds of settings: how a member is made from a value, and a value from a member.
template <typename Enum, const auto& kNames>
struct OneOf {
  static constexpr SettingKind kKind = SettingKind::name;
  static constexpr std::span<const std::string_view> kChoices = kNames;

  static Result<Enum> from(const SettingField& field, const SettingValue& value) {
    const auto* name = std::get_if<std::string>(&value);
    const auto known = name != nullptr ? value_in<Enum>(kNames, *name) : std::nullopt;
    if (!known) return refuse_name(field, kNames, value);
    return *known;
  }
  static SettingValue to(Enum value) { return std::string(name_in(kNames, value)); }
};

template <typename Number, std::uint64_t kLeast, std::uint64_t kMost>
struct Limited {
  static constexpr SettingKind kKind = SettingKind::number;
  static constexpr std::span<const std::string_view> kChoices = {};

  static Result<Number> from(const SettingField& field, const SettingValue& value) {
    const auto* number = std::get_if<std::uint64_t>(&value);
    if (number != nullptr && (*number == 0 || (*number >= kLeast && *number <= kMost))) {
      return static_cast<Number>(*number);
    }
    return refuse(field, kLeast <= 1 ? fmt::format("0 to {}", kMost) : fmt::format("0 or {} to {}", kLeast, kMost),
                  value);
  }
  static SettingValue to(Number value) { return std::uint64_t{value}; }
};

struct Rules {
  static constexpr SettingKind kKind = SettingKind::rules;
  static constexpr std::span<const std::string_view> kChoices = {};

  static Result<std::vector<LossRule>> from(const SettingField& field, const SettingValue& value) {
    const auto* texts = std::get_if<std::vector<std::string>>(&value);
    if (texts == nullptr) return refuse(field, "a list of rules", value);
    std::vector<LossRule> rules;
    for (const std::string& text : *texts) {
      Result<LossRule> rule = parse_loss_rule(text);
      if (!rule) return tl::unexpected(std::move(rule).error().about(field.name));
      rules.push_back(std::move(*rule));
    }
    return rules;
  }
  static SettingValue to(const std::vector<LossRule>& rules) {
    std::vector<std::string> texts;
    for (const LossRule& rule : rules) texts.push_back(format_loss_rule(rule));
    return texts;
  }
};

struct CodecName {
  static constexpr SettingKind kKind = SettingKind::name;
  static constexpr std::span<const std::string_view> kChoices = {};

  static Result<std::string> from(const SettingField& field, const SettingValue& value) {
    const auto* name = std::get_if<std::string>(&value);
    if (name != nullptr && codec::find_encoder(*name) != nullptr) return *name;
    std::vector<std::string_view> known;
    for (const codec::Encoder* encoder : codec::all_encoders()) known.push_back(encoder->decoder().name());
    return refuse_name(field, known, value);
  }
  static SettingValue to(const std::string& name) { return name; }
};

template <auto kMember, typename Kind>
constexpr SettingField row(std::string_view name, std::string_view metavar, std::string_view help) {
  return {.name = name,
          .metavar = metavar,
          .help = help,
          .kind = Kind::kKind,
          .names = Kind::kChoices,
          .set = [](const SettingField& field, CodingSettings& settings, const SettingValue& value) -> Result<void> {
            BITSNAP_ASSIGN(settings.*kMember, Kind::from(field, value));
            return {};
          },
          .get = [](const CodingSettings& settings) -> std::optional<SettingValue> {
            if (!(settings.*kMember)) return std::nullopt;
            return Kind::to(*(settings.*kMember));
          },
          .merge =
              [](CodingSettings& settings, const CodingSettings& others) {
                if (!(settings.*kMember)) settings.*kMember = others.*kMember;
              }};
}

constexpr SettingField forgotten_by_stores(SettingField field) {
  field.is_remembered = false;
  return field;
}

using Settings = CodingSettings;
constexpr std::array kFields{
    row<&Settings::policy, OneOf<Policy, kPolicies>>(
        "policy", "POLICY",
        "lossless: the best of all codecs; bounded: the same after masters and moments lost what stated bounds allow; "
        "lmc, bitsnap: the published methods (bitsnap is lossy for moments); raw: uncompressed"),
    row<&Settings::objective, OneOf<Objective, kObjectives>>(
        "objective", "OBJECTIVE",
        "What codecs are chosen for. ratio: fewest bytes; balanced: least time, writing at 2 GB/s and sometimes "
        "reading back; speed: least time for a store of 20 GB/s that is read as often as written"),
    row<&Settings::store_speed, Limited<std::uint64_t, plan::kSlowestStore, plan::kFastestStore>>(
        "store_speed", "SPEED", "Bytes per second of the store that the objective assumes: 200M, 2G"),
    row<&Settings::base, OneOf<BaseRule, kBaseRules>>(
        "base", "RULE",
        "previous: code against the checkpoint before, smallest; keyframe: against the last keyframe, faster to read"),
    row<&Settings::max_depth, Limited<std::uint32_t, 1, kLongestChain>>(
        "max_depth", "N", "Longest chain of snapshots that reading one may have to follow; 0: keyframes only"),
    row<&Settings::loss, Rules>(
        "loss", "RULE",
        "What tensors may lose, before the rules of the policy: ROLE[:PATTERN]=exact, mantissa_bits:N, master_bits:N, "
        "update_step:X or clusters:N. May be repeated; the first rule that fits a tensor holds"),
    forgotten_by_stores(row<&Settings::codec, CodecName>(
        "codec", "CODEC", "Force this codec for every chunk that it accepts; raw for the others")),
};

}  // namespace

std::string_view policy_name(Policy policy) noexcept { return name_in(kPolicies, policy); }
std::optional<Policy> policy_from_name(std::string_view name) noexcept { return value_in<Policy>(kPolicies, name); }
bool chooses_by_objective(Policy policy) noexcept { return policy == Policy::lossless || policy == Policy::bounded; }

std::string_view objective_name(Objective objective) noexcept { return name_in(kObjectives, objective); }
std::optional<Objective> objective_from_name(std::string_view name) noexcept {
  return value_in<Objective>(kObjectives, name);
}

std::string_view base_rule_name(BaseRule rule) noexcept { return name_in(kBaseRules, rule); }
std::optional<BaseRule> base_rule_from_name(std::string_view name) noexcept {
  return value_in<BaseRule>(kBaseRules, name);
}

std::span<const SettingField> setting_fields() noexcept { return kFields; }

const SettingField* find_setting(std::string_view name) noexcept {
  const auto found = std::ranges::find(kFields, name, &SettingField::name);
  return found == kFields.end() ? nullptr : &*found;
}

Result<void> set_setting(CodingSettings& settings, std::string_view name, const SettingValue& value) {
  if (const SettingField* const field = find_setting(name)) return field->set(*field, settings, value);
  std::vector<std::string_view> known;
  for (const SettingField& field : kFields) known.push_back(field.name);
  return fail(ErrorKind::invalid_argument,
              fmt::format("unknown setting {}; expected one of {}", quote_name(name), fmt::join(known, ", ")));
}

const CodingSettings& default_settings() {
  static const CodingSettings kDefaults{
      .policy = Policy::lossless, .objective = Objective::balanced, .base = BaseRule::previous, .max_depth = 8};
  return kDefaults;
}

Result<void> check_settings(const CodingSettings& settings) {
  CodingSettings checked;
  for (const SettingField& field : kFields) {
    if (const auto value = field.get(settings)) BITSNAP_TRY(field.set(field, checked, *value));
  }
  return {};
}

CodingSettings merge_settings(const CodingSettings& settings, const CodingSettings& others) {
  CodingSettings merged = settings;
  for (const SettingField& field : kFields) field.merge(merged, others);
  if (others.policy && merged.policy != others.policy) merged.loss = settings.loss;
  return merged;
}

}  // namespace bitsnap
