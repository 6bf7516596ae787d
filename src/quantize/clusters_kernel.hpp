// Kernels: the moments of F32 elements, and their nearest numbers in clusters; labels and codes are those of the codec
// clustered. Sums are taken in lanes (lanes.hpp), and each operation is an IEEE 754 operation in a fixed order.
// Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

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

struct ClusterKernels {
  ClusterMoments (*moments)(const std::uint8_t* elements, std::size_t count) noexcept;

  // Replaces each element by the nearest number of its cluster; elements outside the cluster stay.
  void (*to_clusters)(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                      std::size_t count, std::uint8_t* out) noexcept;

  static const ClusterKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::quantize
