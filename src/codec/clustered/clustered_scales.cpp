// Values that are computed once per chunk from its clusters.
#include <algorithm>
#include <bit>
#include <limits>

#include "codec/clustered/cluster_arithmetic.hpp"
#include "codec/clustered/clustered.hpp"

namespace bitsnap::codec {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr std::uint32_t kSign = 0x80000000;

std::uint32_t least_bits(const ClusterExtent& cluster) noexcept { return std::bit_cast<std::uint32_t>(cluster.least); }
std::uint32_t greatest_bits(const ClusterExtent& cluster) noexcept {
  return std::bit_cast<std::uint32_t>(cluster.greatest);
}

}  // namespace

bool are_clusters(std::span<const ClusterExtent> clusters) noexcept {
  if (clusters.empty() || clusters.size() > kMostClusters) return false;
  std::int32_t before = ordinal_of(kSign | kInfinity);
  for (const ClusterExtent& cluster : clusters) {
    const std::int32_t least = ordinal_of(least_bits(cluster));
    const std::int32_t greatest = ordinal_of(greatest_bits(cluster));
    if (least <= before || greatest < least) return false;
    before = greatest;
  }
  return before < ordinal_of(kInfinity);
}

ClusterScales scales_of(std::span<const ClusterExtent> clusters) noexcept {
  ClusterScales scales;
  std::ranges::fill(scales.least, kInfinity);
  std::ranges::fill(scales.greatest, kSign | kInfinity);
  std::ranges::fill(scales.scale, 1.0);
  for (std::size_t label = 0; label < clusters.size(); ++label) {
    scales.least[label] = least_bits(clusters[label]);
    scales.greatest[label] = greatest_bits(clusters[label]);
    scales.scale[label] = scale_between(scales.least[label], scales.greatest[label]);
  }
  return scales;
}

ClusterBoundaries boundaries_of(std::span<const ClusterExtent> clusters) noexcept {
  ClusterBoundaries boundaries{.clusters = clusters.size() <= kFewClusters ? kFewClusters : kMostClusters};
  std::ranges::fill(boundaries.ordinals, std::numeric_limits<std::int32_t>::max());
  for (std::size_t label = 1; label < clusters.size(); ++label) {
    boundaries.ordinals[label - 1] = ordinal_of(least_bits(clusters[label]));
  }
  return boundaries;
}

}  // namespace bitsnap::codec
