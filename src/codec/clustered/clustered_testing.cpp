#include "codec/clustered/clustered_testing.hpp"

#include <algorithm>
#include <cstring>

#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {

float clustered_number(const ClusterExtent& cluster, unsigned code) {
  if (code == 0) return cluster.least;
  if (code == 255) return cluster.greatest;
  const double least = static_cast<double>(cluster.least);
  const double range = static_cast<double>(cluster.greatest) - least;
  const double scale = range > 0 ? range / 255 : 1;
  const double offset = scale * code;
  return static_cast<float>(least + offset);
}

std::vector<ClusterExtent> normal_clusters(std::size_t clusters, std::uint64_t seed) {
  TestRandom random(seed);
  std::vector<float> ends;
  while (ends.size() < 2 * clusters) {
    for (std::size_t i = ends.size(); i < 2 * clusters; ++i) ends.push_back(static_cast<float>(1e-4 * random.normal()));
    std::ranges::sort(ends);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  }
  std::vector<ClusterExtent> made;
  for (std::size_t i = 0; i < clusters; ++i) made.push_back({ends[2 * i], ends[2 * i + 1]});
  return made;
}

TestChunk clustered_chunk(std::size_t elements, const std::vector<ClusterExtent>& clusters, std::uint64_t seed) {
  TestRandom random(seed);
  TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(elements * sizeof(float)), .base = {}};
  chunk.clusters = clusters;
  for (std::size_t i = 0; i < elements; ++i) {
    const ClusterExtent& cluster = clusters[random.below(clusters.size())];
    const float number = clustered_number(cluster, static_cast<unsigned>(random.below(256)));
    std::memcpy(chunk.data.data() + i * sizeof(float), &number, sizeof number);
  }
  return chunk;
}

}  // namespace bitsnap::codec
