// How codecs are chosen for a snapshot: the policy, the objective with its model of time, and a codec that is forced.
//
// Plain data, made once for a snapshot and read by all threads.
#pragma once

#include <bitsnap/error.hpp>
#include <bitsnap/settings.hpp>

#include "codec/encoder.hpp"
#include "plan/cost_model.hpp"

namespace bitsnap::plan {

struct PlannerSettings {
  Policy policy = Policy::lossless;
  Objective objective = Objective::balanced;
  CostModel model = {};
  const codec::Encoder* forced = nullptr;  // codes every chunk that it accepts, other chunks are raw; nullptr: none

  // Only `lossless` and `bounded` have objectives. The other policies take the least bytes, as their papers do.
  [[nodiscard]] bool counts_time() const noexcept {
    return chooses_by_objective(policy) && objective != Objective::ratio;
  }
  // Whether time matters less than bytes, so that more candidates are looked at, and more closely.
  [[nodiscard]] bool seeks_fewest_bytes() const noexcept {
    return chooses_by_objective(policy) && objective == Objective::ratio && forced == nullptr;
  }
};

// Settings without a value have their defaults. invalid_argument for one that is out of range.
[[nodiscard]] Result<PlannerSettings> make_planner_settings(const CodingSettings& settings);

}  // namespace bitsnap::plan
