// Names of the policies.
#include <bitsnap/writer.hpp>

namespace bitsnap {

std::string_view policy_name(Policy policy) noexcept {
  switch (policy) {
    case Policy::lossless: return "lossless";
    case Policy::lmc: return "lmc";
    case Policy::bounded: return "bounded";
    case Policy::bitsnap: return "bitsnap";
    case Policy::raw: return "raw";
  }
  return "unknown";
}

bool chooses_by_objective(Policy policy) noexcept { return policy == Policy::lossless || policy == Policy::bounded; }

std::optional<Policy> policy_from_name(std::string_view name) noexcept {
  for (const Policy policy : {Policy::lossless, Policy::bounded, Policy::lmc, Policy::bitsnap, Policy::raw}) {
    if (policy_name(policy) == name) return policy;
  }
  return std::nullopt;
}

}  // namespace bitsnap
