// Names of the objectives, and the model of each.
#include "plan/goal.hpp"

#include <string>

#include <fmt/format.h>

#include "codec/registry_encode.hpp"
#include "container/json_text.hpp"

namespace bitsnap::plan {
namespace {

// A store that copies about as fast as a few threads do, and every snapshot is read back.
constexpr CostModel kFastStore{.store_bytes_per_second = 20'000'000'000, .restore_permille = 1000};

}  // namespace

Goal goal_under(Policy policy, Goal goal) noexcept {
  if (!chooses_by_objective(policy)) goal.objective = Objective::ratio;
  return goal;
}

Result<Goal> make_goal(Objective objective, std::uint64_t store_bytes_per_second, std::string_view codec) {
  Goal goal{.objective = objective, .model = objective == Objective::speed ? kFastStore : CostModel{}};
  if (store_bytes_per_second != 0) {
    if (store_bytes_per_second < kSlowestStore || store_bytes_per_second > kFastestStore) {
      return fail(ErrorKind::invalid_argument, fmt::format("a store of {} bytes per second: expected {} to {}",
                                                           store_bytes_per_second, kSlowestStore, kFastestStore));
    }
    goal.model.store_bytes_per_second = store_bytes_per_second;
  }
  if (codec.empty()) return goal;
  goal.forced = codec::find_encoder(codec);
  if (goal.forced != nullptr) return goal;
  std::string known;
  for (const codec::Encoder* encoder : codec::all_encoders()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", encoder->decoder().name());
  }
  return fail(ErrorKind::invalid_argument,
              fmt::format("codec {} is not known, only {}", container::quote_name(codec), known));
}

}  // namespace bitsnap::plan

namespace bitsnap {

std::string_view objective_name(Objective objective) noexcept {
  switch (objective) {
    case Objective::ratio: return "ratio";
    case Objective::balanced: return "balanced";
    case Objective::speed: return "speed";
  }
  return "unknown";
}

std::optional<Objective> objective_from_name(std::string_view name) noexcept {
  for (const Objective objective : {Objective::ratio, Objective::balanced, Objective::speed}) {
    if (objective_name(objective) == name) return objective;
  }
  return std::nullopt;
}

}  // namespace bitsnap
