// Shared by both sides of the codec clustered: spec.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/checked.hpp"
#include "codec/clustered/cluster_extent.hpp"
#include "codec/clustered/clustered_kernel.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// Bits of a label, the number of clusters minus 1, and the number of exceptions.
inline constexpr std::size_t kClusteredHeaderBytes = 1 + 1 + sizeof(std::uint32_t);
inline constexpr std::size_t kClusterBytes = 2 * sizeof(float);                     // in the table
inline constexpr std::size_t kClusteredExceptionBytes = 2 * sizeof(std::uint32_t);  // its index and its bits

// Elements whose labels are unpacked together.
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

// Whether there are 1 to 256 clusters of finite numbers, each above the previous one.
[[nodiscard]] bool are_clusters(std::span<const ClusterExtent> clusters) noexcept;

// The scales of the clusters, by index; the remaining entries are empty. Precondition: a FloatMode is active.
[[nodiscard]] ClusterScales scales_of(std::span<const ClusterExtent> clusters) noexcept;

// For numbers in these clusters. A number between two clusters may get the label of either.
[[nodiscard]] ClusterBoundaries boundaries_of(std::span<const ClusterExtent> clusters) noexcept;

}  // namespace bitsnap::codec
