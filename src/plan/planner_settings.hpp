// How codecs are chosen for a snapshot: the policy, the objective with its model of time, and a codec that is forced.
//
// Plain data, made once for a snapshot and read by all threads.
#pragma once

#include <cstdint>
#include <string_view>

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

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
};

// A `store_bytes_per_second` of 0 takes the speed that belongs to the objective. An empty `codec` forces none. Fails
// with invalid_argument if the speed is out of range or no codec has the name.
[[nodiscard]] Result<PlannerSettings> make_planner_settings(Policy policy, Objective objective,
                                                            std::uint64_t store_bytes_per_second,
                                                            std::string_view codec);

}  // namespace bitsnap::plan
