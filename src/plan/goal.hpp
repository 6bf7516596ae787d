// What the choice of a codec is to achieve: the objective, its model of time, and a codec that is forced.
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

struct Goal {
  Objective objective = Objective::balanced;
  CostModel model = {};
  const codec::Encoder* forced = nullptr;  // for every chunk that it takes, and raw for the others; nullptr: none

  [[nodiscard]] bool counts_time() const noexcept { return objective != Objective::ratio; }
};

// The same under a policy: only `lossless` has objectives, the others take least bytes, as their papers do.
[[nodiscard]] Goal goal_under(Policy policy, Goal goal) noexcept;

// `store_bytes_per_second` 0: that of the objective. `codec` empty: none is forced. invalid_argument for a speed out of
// range, and for a name that no codec has, with those there are.
[[nodiscard]] Result<Goal> make_goal(Objective objective, std::uint64_t store_bytes_per_second, std::string_view codec);

}  // namespace bitsnap::plan
