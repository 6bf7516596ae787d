// Sums and maxima in the lanes of lanes.hpp, for kernels. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernel_bits.hpp"
#include "quantize/lanes.hpp"

namespace bitsnap::quantize {

namespace {

inline double number_of(std::uint32_t bits) noexcept { return static_cast<double>(__builtin_bit_cast(float, bits)); }

constexpr std::size_t kLaneRun = 256;  // values that are computed before they are added

// The compiler turns all lanes into vectors.
inline void add_to_lanes(const double (&values)[kLaneRun], std::size_t count, double (&sums)[kLanes]) noexcept {
  double own[kLanes];
  for (std::size_t lane = 0; lane < kLanes; ++lane) own[lane] = sums[lane];
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) own[lane] += values[i + lane];
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] = own[lane];
}

inline void max_to_lanes(const double (&values)[kLaneRun], std::size_t count, double (&most)[kLanes]) noexcept {
  double own[kLanes];
  for (std::size_t lane = 0; lane < kLanes; ++lane) own[lane] = most[lane];
  for (std::size_t i = 0; i < count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      own[lane] = values[i + lane] > own[lane] ? values[i + lane] : own[lane];
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) most[lane] = own[lane];
}

// Pads the last run of a part with neutral values; returns the padded number of values.
inline std::size_t pad_run(double (&first)[kLaneRun], double (&second)[kLaneRun], std::size_t count) noexcept {
  for (; count % kLanes != 0; ++count) first[count] = second[count] = 0;
  return count;
}

}  // namespace
}  // namespace bitsnap::quantize
