// The quantizer clusters: BitSnap's, as reconstructed in docs/spec/quantizers.md. It replaces F32 elements by the
// nearest of 256 equidistant numbers between the least and the greatest of their cluster. There are 16 or 256 clusters,
// divided at quantiles of the normal distribution with the tensor's mean and deviation.
//
// Fitting reads a tensor twice, in any number of threads: first the moments of its chunks; then, with the resulting
// boundaries, the extents of the clusters. Then any part can be quantized. The result depends on the elements alone.
// All computations run in a FloatMode. Nothing is allocated.
//
// Idempotent with the same Clusters, but not with a new fit, because the mean and thus the boundaries change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quantize/clusters_kernel.hpp"
#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

// Values that are computed once for the clusters of a tensor: boundaries from moments, scales from extents.
// Precondition: a FloatMode is active.

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

// The codec clustered stores a label of this many bits and a code of eight bits for each element.
enum class ClusterLabels : std::uint8_t {
  four_bits = 4,   // 16 clusters
  eight_bits = 8,  // 256
};

// A cluster. Code 0 means `least`, 255 means `greatest`, and any other code c means least + scale * c, computed in F64
// and rounded to F32.
struct Cluster {
  float least = 0;
  float greatest = 0;
  double scale = 0;          // 1 if least and greatest are equal
  bool has_numbers = false;  // if false, the other members have no meaning
};

class Clusters final : public Quantizer {
 public:
  [[nodiscard]] std::size_t cluster_count() const noexcept { return boundaries_.clusters; }
  [[nodiscard]] Cluster cluster(std::size_t label) const noexcept;

  // The largest absolute error of an element that the fit has seen: half of the largest scale, plus F32 rounding.
  [[nodiscard]] double absolute_bound() const noexcept;

  [[nodiscard]] std::string_view name() const noexcept override { return "clusters"; }

  // Accepts F32 without other tensors. An element that the fit has not seen stays as it is if it is outside its
  // cluster; so do infinities and NaNs, which no fit includes.
  [[nodiscard]] Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                      ErrorTally* tally) const override;

 private:
  friend class ClusterFit;
  Clusters() = default;

  ClusterBoundaries boundaries_;
  ClusterScales scales_;
};

// The moments of one chunk of the stored tensor: at most kChunkElements F32.
[[nodiscard]] ClusterMoments cluster_moments(ConstByteSpan chunk) noexcept;

// The second pass. Not thread-safe: each thread adds to its own copy, and the copies are merged in any order.
class ClusterFit {
 public:
  // `chunks` are the moments of all chunks, in order.
  ClusterFit(ClusterLabels labels, std::span<const ClusterMoments> chunks) noexcept;

  // Any part of the tensor, in whole F32.
  void add(ConstByteSpan part) noexcept;

  // Adds the extents of a fit from the same moments.
  void merge(const ClusterFit& other) noexcept;

  [[nodiscard]] Clusters clusters() const noexcept;

 private:
  ClusterBoundaries boundaries_;
  // ordinals, like the boundaries; greatest is below least if the cluster is empty
  std::int32_t least_[kMostClusters] = {};
  std::int32_t greatest_[kMostClusters] = {};
};

// Both passes over a tensor of F32 in memory.
[[nodiscard]] Clusters fit_clusters(ClusterLabels labels, ConstByteSpan tensor) noexcept;

}  // namespace bitsnap::quantize
