// The quantizer clusters: BitSnap's, as it is reconstructed in docs/spec/quantizers.md. F32 become the nearest of 256
// numbers that are equally far apart between the least and the greatest of their cluster; there are 16 clusters, or
// 256, cut at quantiles of the normal distribution that has the tensor's mean and deviation.
//
// Fitting reads a tensor twice, in any number of threads: its chunks' moments; then, with the boundaries that follow
// from all of them, the extents of the clusters. After that any part can be quantized. What is found depends on the
// elements and on nothing else. All is computed as a FloatMode says, whatever the thread has set. Nothing is allocated.
//
// Idempotent with the same Clusters. Not where they are fitted again: the mean has moved, and with it the boundaries.
#pragma once

#include <cstddef>
#include <span>

#include "quantize/cluster_boundaries.hpp"
#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

// What the codec clustered stores of an element: a label, and a code of eight bits.
enum class ClusterLabels : std::uint8_t {
  four_bits = 4,   // 16 clusters
  eight_bits = 8,  // 256
};

// Of one cluster. What has the code c is `least` for 0, `greatest` for 255, else least + scale * c: two operations in
// F64, the result of which is then rounded to F32.
struct Cluster {
  float least = 0;
  float greatest = 0;
  double scale = 0;          // 1 where both are the same number
  bool has_numbers = false;  // nothing else counts without
};

class Clusters final : public Quantizer {
 public:
  [[nodiscard]] std::size_t cluster_count() const noexcept { return boundaries_.clusters; }
  [[nodiscard]] Cluster cluster(std::size_t label) const noexcept;

  // Most that the absolute error of an element can be that the fit has seen: half of the largest scale, and what F32
  // adds.
  [[nodiscard]] double absolute_bound() const noexcept;

  [[nodiscard]] std::string_view name() const noexcept override { return "clusters"; }

  // For F32 with nothing beside them. What the fit has not seen stays as it is where it is beyond the numbers of its
  // cluster; so do infinities and NaNs, which no fit looks at.
  [[nodiscard]] Result<void> quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                      ErrorTally* tally) const override;

 private:
  friend class ClusterFit;
  Clusters() = default;

  ClusterBoundaries boundaries_;
  ClusterScales scales_;
};

// Of one chunk of a tensor: at most kChunkElements F32. Chunks are those that the tensor is stored in.
[[nodiscard]] ClusterMoments cluster_moments(ConstByteSpan chunk) noexcept;

// The second reading. Not to be shared by threads: each adds to a copy, and the copies are merged, in any order.
class ClusterFit {
 public:
  // From the moments of all chunks, in their order.
  ClusterFit(ClusterLabels labels, std::span<const ClusterMoments> chunks) noexcept;

  // Any part of the tensor: whole F32.
  void add(ConstByteSpan part) noexcept;

  // Adds what a fit from the same moments has been given.
  void merge(const ClusterFit& other) noexcept;

  [[nodiscard]] Clusters clusters() const noexcept;

 private:
  ClusterBoundaries boundaries_;
  // Ordinals, as the boundaries; greatest below least where there is none.
  std::int32_t least_[kMostClusters] = {};
  std::int32_t greatest_[kMostClusters] = {};
};

// Both readings of a tensor of F32 that lies in memory.
[[nodiscard]] Clusters fit_clusters(ClusterLabels labels, ConstByteSpan tensor) noexcept;

}  // namespace bitsnap::quantize
