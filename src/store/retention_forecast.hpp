// Plays what a run does with its checkpoints, save by save, with the functions that a store decides with: how much the
// run holds, how much it holds at most while a checkpoint is saved, and how much it writes. Pure functions of sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <bitsnap/settings.hpp>

#include "store/coding_plan.hpp"

namespace bitsnap::store {

// What a checkpoint takes, in parts of its raw bytes.
struct TrialShares {
  double alone = 0;
  double keyframe = 0;  // alone, but for the chunks that did not change since the checkpoint before
  // Coded against an earlier and against a later checkpoint, by distance in checkpoints from 1 on. The last one holds
  // for larger distances. Never empty.
  std::vector<double> earlier;
  std::vector<double> later;
};

// Adds what checkpoints are expected to take that are farther apart than those that were measured, as a store expects
// it.
void expect_farther(TrialShares& shares);

// In raw bytes of one checkpoint.
struct Forecast {
  double held = 0;             // mean after a save
  double peak = 0;             // the most at any time
  double written = 0;          // mean for each save, with what is written again
  CodingPattern pattern = {};  // of the last save
};

// A run that keeps its `keep_last` newest checkpoints, from the first save on that it holds as many as ever. `shares`
// are those of its checkpoints, in order: of each, what it takes against those before it, and against those behind it.
[[nodiscard]] Forecast forecast_retention(std::span<const TrialShares> shares, std::uint64_t keep_last,
                                          std::uint32_t max_depth);
// The same in the long run, if all checkpoints are alike.
[[nodiscard]] Forecast forecast_long_run(const TrialShares& shares, std::uint64_t keep_last, std::uint32_t max_depth);

// A run that has kept all of these checkpoints, in chains.
[[nodiscard]] Forecast forecast_chain(std::span<const TrialShares> shares, std::uint32_t max_depth, BaseRule rule);

// How far apart the checkpoints are that are coded against one another, at most.
[[nodiscard]] std::size_t longest_distance(const CodingPattern& pattern) noexcept;

}  // namespace bitsnap::store
