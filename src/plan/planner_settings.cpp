// Resolves settings into what the planner looks up for each chunk.
#include "plan/planner_settings.hpp"

#include "base/try.hpp"
#include "codec/registry_encode.hpp"

namespace bitsnap::plan {
namespace {

// Objective::speed: a store about as fast as a few threads can copy, and every snapshot is read back
// (docs/decisions/0011-objectives.md).
constexpr CostModel kFastStore{.store_bytes_per_second = 20'000'000'000, .restore_permille = 1000};

}  // namespace

Result<PlannerSettings> make_planner_settings(const CodingSettings& settings) {
  BITSNAP_TRY(check_settings(settings));
  const CodingSettings complete = merge_settings(settings, default_settings());
  PlannerSettings made{.policy = *complete.policy,
                       .objective = *complete.objective,
                       .model = *complete.objective == Objective::speed ? kFastStore : CostModel{}};
  if (complete.store_speed.value_or(0) != 0) made.model.store_bytes_per_second = *complete.store_speed;
  if (complete.codec) made.forced = codec::find_encoder(*complete.codec);
  return made;
}

}  // namespace bitsnap::plan
