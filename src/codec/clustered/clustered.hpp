// What both sides of the codec clustered agree on: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked.hpp"
#include "codec/clustered/cluster_extent.hpp"
#include "codec/clustered/clustered_kernel.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// Bits of a label, the clusters less one, and the number of exceptions.
inline constexpr std::size_t kClusteredHeaderBytes = 1 + 1 + sizeof(std::uint32_t);
inline constexpr std::size_t kClusterBytes = 2 * sizeof(float);                     // of the table
inline constexpr std::size_t kClusteredExceptionBytes = 2 * sizeof(std::uint32_t);  // its number and its bits

// Elements whose labels lie unpacked at a time.
inline constexpr std::size_t kClusteredPart = 1024;

[[nodiscard]] constexpr std::size_t label_bits_of(std::size_t clusters) noexcept {
  return clusters <= kFewClusters ? 4 : 8;
}

[[nodiscard]] constexpr std::size_t label_bytes(std::size_t label_bits, std::size_t elements) noexcept {
  return divide_up(elements * label_bits, std::size_t{8});
}

[[nodiscard]] constexpr std::size_t clustered_size(std::size_t label_bits, std::size_t clusters, std::size_t exceptions,
                                                   std::size_t elements) noexcept {
  return kClusteredHeaderBytes + clusters * kClusterBytes + exceptions * kClusteredExceptionBytes +
         label_bytes(label_bits, elements) + elements;
}

// Whether there are 1 to 256, of finite numbers, each above the one before.
[[nodiscard]] bool are_clusters(std::span<const ClusterExtent> clusters) noexcept;

// Clusters by their place among these, and none behind them. Precondition: the thread computes as a FloatMode says.
[[nodiscard]] ClusterScales scales_of(std::span<const ClusterExtent> clusters) noexcept;

// For numbers of these clusters; what lies between two has the label of either.
[[nodiscard]] ClusterBoundaries boundaries_of(std::span<const ClusterExtent> clusters) noexcept;

}  // namespace bitsnap::codec
