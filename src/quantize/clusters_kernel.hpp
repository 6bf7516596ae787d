// Clusters of numbers: their moments, and what numbers become; labels and codes are those of the codec clustered. One
// per CPU level; all give the same bits, as sums are taken in lanes (lanes.hpp) and each operation is one of IEEE 754
// in a fixed order.
//
// Kernels: they allocate nothing and cannot fail. Elements are F32 and need no alignment; outputs must not overlap
// inputs. Precondition: the thread computes as a FloatMode says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/clustered/clustered_kernel.hpp"
#include "quantize/lanes.hpp"

namespace bitsnap::quantize {

using codec::ClusterBoundaries;
using codec::ClusterScales;
using codec::kMostClusters;

// Sums over the finite elements of one chunk.
struct ClusterMoments {
  std::uint64_t finite = 0;
  double sum = 0;
  double sum_square = 0;
};

[[nodiscard]] ClusterMoments moments_scalar(const std::uint8_t* elements, std::size_t count) noexcept;
[[nodiscard]] ClusterMoments moments_avx2(const std::uint8_t* elements, std::size_t count) noexcept;
[[nodiscard]] ClusterMoments moments_avx512(const std::uint8_t* elements, std::size_t count) noexcept;

// Each element becomes the nearest that its cluster has; what is not between the least and the greatest of it stays.
void to_clusters_scalar(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                        std::size_t count, std::uint8_t* out) noexcept;
void to_clusters_avx2(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                      std::size_t count, std::uint8_t* out) noexcept;
void to_clusters_avx512(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                        std::size_t count, std::uint8_t* out) noexcept;

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
