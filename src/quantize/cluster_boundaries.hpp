// What is computed once for the clusters of a tensor: boundaries from moments, scales from extents. Precondition: the
// thread computes as a FloatMode says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/clusters_kernel.hpp"

namespace bitsnap::quantize {

// Widens the extents of clusters, as ordinals, by the finite ones of these elements.
void widen_extents(const std::uint8_t* elements, const std::uint8_t* labels, std::size_t count, std::int32_t* least,
                   std::int32_t* greatest) noexcept;

// Of the chunks up to `all`, and of the one behind them.
[[nodiscard]] ClusterMoments sum_of(const ClusterMoments& all, const ClusterMoments& next) noexcept;

// At quantiles of the normal distribution that has these moments, which are of chunks in their order.
[[nodiscard]] ClusterBoundaries boundaries_of(std::size_t clusters, std::span<const ClusterMoments> moments) noexcept;

// From the extents of `clusters` clusters; that of one without numbers ends below its begin.
[[nodiscard]] ClusterScales scales_of(std::size_t clusters, const std::int32_t* least,
                                      const std::int32_t* greatest) noexcept;

// Most that an element can be away from the nearest that its cluster has.
[[nodiscard]] double bound_of(std::size_t clusters, const ClusterScales& scales) noexcept;

}  // namespace bitsnap::quantize
