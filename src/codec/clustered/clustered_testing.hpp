// Numbers of clusters, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/coding_testing.hpp"

namespace bitsnap::codec {

// The number that a code of a cluster stands for, computed as spec.md says.
[[nodiscard]] float clustered_number(const ClusterExtent& cluster, unsigned code);

// So many, as those of moments may be: on both sides of 0.
[[nodiscard]] std::vector<ClusterExtent> normal_clusters(std::size_t clusters, std::uint64_t seed);

// Numbers of these clusters, with codes of all values, in any order.
[[nodiscard]] TestChunk clustered_chunk(std::size_t elements, const std::vector<ClusterExtent>& clusters,
                                        std::uint64_t seed);

}  // namespace bitsnap::codec
