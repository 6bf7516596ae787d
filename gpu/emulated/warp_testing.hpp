// The warp that kernels run on where there is no GPU: one thread that does the work of 64 lanes, one after the other.
// cuda_warp.hpp has the same functions for a GPU, where a warp of 32 threads has two lanes each.
#pragma once

#include <array>
#include <cstdint>

#include "gpu/lane_jobs.hpp"

namespace bitsnap::gpu {

class EmulatedWarp {
 public:
  // A register of each lane: that of lane l is [slot], with the slot that each() and the others give for l.
  template <typename T>
  using PerLane = std::array<T, kLanes>;

  // body(lane, slot) for each lane.
  template <typename Body>
  void each(Body&& body) const {
    for (unsigned lane = 0; lane < kLanes; ++lane) body(lane, lane);
  }

  // Bit l is what test(l, slot) returns.
  template <typename Test>
  [[nodiscard]] std::uint64_t vote(Test&& test) const {
    std::uint64_t mask = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) mask |= std::uint64_t{test(lane, lane)} << lane;
    return mask;
  }

  // Replaces the number of each lane by the sum of those of all lanes before it; returns the sum of all.
  [[nodiscard]] std::uint64_t sum_before(PerLane<std::uint64_t>& numbers) const {
    std::uint64_t sum = 0;
    for (std::uint64_t& number : numbers) {
      const std::uint64_t own = number;
      number = sum;
      sum += own;
    }
    return sum;
  }

  // The OR of all lanes.
  [[nodiscard]] std::uint32_t any_of(const PerLane<std::uint32_t>& bits) const {
    std::uint32_t all = 0;
    for (const std::uint32_t own : bits) all |= own;
    return all;
  }

  // What lanes wrote to memory before can be read by all of them afterwards.
  void sync() const {}
};

}  // namespace bitsnap::gpu
