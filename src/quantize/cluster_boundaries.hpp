// Values that are computed once for the clusters of a tensor: boundaries from moments, scales from extents.
// Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/clusters_kernel.hpp"

namespace bitsnap::quantize {

// Widens the extents of clusters, as ordinals, to include the finite elements.
void widen_extents(const std::uint8_t* elements, const std::uint8_t* labels, std::size_t count, std::int32_t* least,
                   std::int32_t* greatest) noexcept;

// The moments of the chunks in `all` and of the chunk after them.
[[nodiscard]] ClusterMoments sum_of(const ClusterMoments& all, const ClusterMoments& next) noexcept;

// The boundaries: quantiles of the normal distribution with these moments, which are given per chunk in order.
[[nodiscard]] ClusterBoundaries boundaries_of(std::size_t clusters, std::span<const ClusterMoments> moments) noexcept;

// The scales for the extents of `clusters` clusters. In an empty cluster, greatest is below least.
[[nodiscard]] ClusterScales scales_of(std::size_t clusters, const std::int32_t* least,
                                      const std::int32_t* greatest) noexcept;

// The largest distance of an element from the nearest number of its cluster.
[[nodiscard]] double bound_of(std::size_t clusters, const ClusterScales& scales) noexcept;

}  // namespace bitsnap::quantize
