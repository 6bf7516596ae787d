// Clusters and chunks of their numbers, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/coding_testing.hpp"

namespace bitsnap::codec {

// The number of a code in a cluster, computed as in spec.md.
[[nodiscard]] float clustered_number(const ClusterExtent& cluster, unsigned code);

// Clusters like those of moments: on both sides of 0.
[[nodiscard]] std::vector<ClusterExtent> normal_clusters(std::size_t clusters, std::uint64_t seed);

// Numbers of these clusters with all codes, in random order.
[[nodiscard]] TestChunk clustered_chunk(std::size_t elements, const std::vector<ClusterExtent>& clusters,
                                        std::uint64_t seed);

}  // namespace bitsnap::codec
