// The loops of clusters_kernel.hpp, for the compiler to make vectors of at each CPU level. Everything has internal
// linkage, so that no other file can be given code it cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quantize/clusters_kernel.hpp"
#include "quantize/lanes_loop.hpp"

namespace bitsnap::quantize {
namespace {

// Orders as the numbers do; -0 is just below 0, and NaNs are beyond the infinities.
inline std::int32_t ordinal_of(std::uint32_t bits) noexcept {
  const auto number = static_cast<std::int32_t>(bits);
  return number ^ ((number >> 31) & 0x7fffffff);
}

inline std::uint32_t bits_of(std::int32_t ordinal) noexcept {
  return static_cast<std::uint32_t>(ordinal ^ ((ordinal >> 31) & 0x7fffffff));
}

inline ClusterMoments moments_loop(const std::uint8_t* elements, std::size_t total) noexcept {
  constexpr std::uint32_t kMagnitude = 0x7fffffff;
  constexpr std::uint32_t kInfinity = 0x7f800000;
  double numbers[kLaneRun];
  double squares[kLaneRun];
  double sums[kLanes] = {};
  double square_sums[kLanes] = {};
  ClusterMoments moments;
  for (std::size_t first = 0; first < total; first += kLaneRun) {
    const std::size_t count = total - first < kLaneRun ? total - first : kLaneRun;
    std::uint32_t finite = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = word_at(elements, first + i);
      const std::uint32_t is_finite = mask_of((bits & kMagnitude) < kInfinity);
      const double x = number_of(bits & is_finite);
      numbers[i] = x;
      squares[i] = x * x;
      finite += is_finite & 1;
    }
    moments.finite += finite;
    const std::size_t padded = pad_run(numbers, squares, count);
    add_to_lanes(numbers, padded, sums);
    add_to_lanes(squares, padded, square_sums);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    moments.sum += sums[lane];
    moments.sum_square += square_sums[lane];
  }
  return moments;
}

inline void find_labels_loop(const ClusterBoundaries& boundaries, const std::uint8_t* __restrict elements,
                             std::size_t total, std::uint8_t* __restrict labels) noexcept {
  const std::int32_t* const ordinals = boundaries.ordinals;
  if (boundaries.clusters == 16) {
    for (std::size_t i = 0; i < total; ++i) {
      const std::int32_t x = ordinal_of(word_at(elements, i));
      std::int32_t label = 0;
      for (std::size_t j = 0; j < 15; ++j) label += x >= ordinals[j] ? 1 : 0;
      labels[i] = static_cast<std::uint8_t>(label);
    }
    return;
  }
  // Of all elements of a run one halving, then the next.
  for (std::size_t first = 0; first < total; first += kLaneRun) {
    const std::size_t count = total - first < kLaneRun ? total - first : kLaneRun;
    std::int32_t numbers[kLaneRun];
    std::uint32_t found[kLaneRun];  // as many boundaries are not above the number
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = ordinal_of(word_at(elements, first + i));
      found[i] = 0;
    }
    for (std::uint32_t step = kMostClusters / 2; step > 0; step /= 2) {
      for (std::size_t i = 0; i < count; ++i) found[i] += step & mask_of(numbers[i] >= ordinals[found[i] + step - 1]);
    }
    for (std::size_t i = 0; i < count; ++i) labels[first + i] = static_cast<std::uint8_t>(found[i]);
  }
}

inline void to_clusters_loop(const ClusterScales& scales, const std::uint8_t* __restrict elements,
                             const std::uint8_t* __restrict labels, std::size_t total,
                             std::uint8_t* __restrict out) noexcept {
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds to a multiple of 1, to nearest and even
  // Looked up first, one after another, so that the rest is done in vectors.
  std::uint32_t leasts[kLaneRun];
  std::uint32_t greatests[kLaneRun];
  double steps[kLaneRun];
  for (std::size_t first = 0; first < total; first += kLaneRun) {
    const std::size_t count = total - first < kLaneRun ? total - first : kLaneRun;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t label = labels[first + i];
      leasts[i] = scales.least[label];
      greatests[i] = scales.greatest[label];
      steps[i] = scales.scale[label];
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = word_at(elements, first + i);
      const std::uint32_t least = leasts[i];
      const std::uint32_t greatest = greatests[i];
      const double scale = steps[i];
      const std::int32_t ordinal = ordinal_of(bits);
      const std::uint32_t is_within = mask_of(ordinal >= ordinal_of(least)) & mask_of(ordinal <= ordinal_of(greatest));
      const double offset = number_of(least & is_within);
      const double code = ((number_of(bits & is_within) - offset) / scale + kToInteger) - kToInteger;
      const auto nearest = static_cast<float>(offset + scale * code);
      const auto whole = static_cast<std::uint32_t>(static_cast<std::int32_t>(code));
      const std::uint32_t is_least = mask_of(whole == 0);
      const std::uint32_t is_greatest = mask_of(whole == 255);
      const std::uint32_t inner = __builtin_bit_cast(std::uint32_t, nearest) & ~(is_least | is_greatest);
      const std::uint32_t coded = inner | (least & is_least) | (greatest & is_greatest);
      const std::uint32_t result = (coded & is_within) | (bits & ~is_within);
      __builtin_memcpy(out + 4 * (first + i), &result, sizeof result);
    }
  }
}

}  // namespace
}  // namespace bitsnap::quantize
