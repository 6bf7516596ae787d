// Names of the policies and of the objectives, as users and files spell them.
#include <array>
#include <utility>

#include <bitsnap/writer.hpp>

namespace bitsnap {
namespace {

constexpr std::array<std::pair<Policy, std::string_view>, 5> kPolicyNames{{{Policy::lossless, "lossless"},
                                                                           {Policy::lmc, "lmc"},
                                                                           {Policy::bounded, "bounded"},
                                                                           {Policy::bitsnap, "bitsnap"},
                                                                           {Policy::raw, "raw"}}};

constexpr std::array<std::pair<Objective, std::string_view>, 3> kObjectiveNames{
    {{Objective::ratio, "ratio"}, {Objective::balanced, "balanced"}, {Objective::speed, "speed"}}};

template <typename Names, typename Value>
std::string_view name_in(const Names& names, Value value) noexcept {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "unknown";
}

template <typename Value, std::size_t kCount>
std::optional<Value> value_in(const std::array<std::pair<Value, std::string_view>, kCount>& names,
                              std::string_view name) noexcept {
  for (const auto& [value, known] : names) {
    if (known == name) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string_view policy_name(Policy policy) noexcept { return name_in(kPolicyNames, policy); }
std::optional<Policy> policy_from_name(std::string_view name) noexcept { return value_in(kPolicyNames, name); }
bool chooses_by_objective(Policy policy) noexcept { return policy == Policy::lossless || policy == Policy::bounded; }

std::string_view objective_name(Objective objective) noexcept { return name_in(kObjectiveNames, objective); }
std::optional<Objective> objective_from_name(std::string_view name) noexcept { return value_in(kObjectiveNames, name); }

}  // namespace bitsnap
