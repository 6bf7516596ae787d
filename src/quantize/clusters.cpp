// Fits clusters in two passes, and quantizes block by block.
#include "quantize/clusters.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include <fmt/format.h>

#include <bitsnap/tensor.hpp>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "quantize/quantize_blocks.hpp"

namespace bitsnap::quantize {
namespace {

const std::uint8_t* elements_of(ConstByteSpan bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes.data());
}

}  // namespace

ClusterMoments cluster_moments(ConstByteSpan chunk) noexcept {
  const FloatMode mode;
  return kernels<ClusterKernels>().moments(elements_of(chunk), chunk.size() / 4);
}

ClusterFit::ClusterFit(ClusterLabels labels, std::span<const ClusterMoments> chunks) noexcept {
  const FloatMode mode;
  boundaries_ = boundaries_of(std::size_t{1} << static_cast<unsigned>(labels), chunks);
  std::ranges::fill(least_, std::numeric_limits<std::int32_t>::max());
  std::ranges::fill(greatest_, std::numeric_limits<std::int32_t>::min());
}

void ClusterFit::add(ConstByteSpan part) noexcept {
  std::uint8_t labels[kBlockElements];
  const std::size_t total = part.size() / 4;
  for (std::size_t first = 0; first < total; first += kBlockElements) {
    const std::size_t count = std::min(kBlockElements, total - first);
    const std::uint8_t* const elements = elements_of(part) + 4 * first;
    kernels<codec::ClusteredKernels>().find_labels(boundaries_, elements, count, labels);
    widen_extents(elements, labels, count, least_, greatest_);
  }
}

void ClusterFit::merge(const ClusterFit& other) noexcept {
  for (std::size_t label = 0; label < kMostClusters; ++label) {
    least_[label] = std::min(least_[label], other.least_[label]);
    greatest_[label] = std::max(greatest_[label], other.greatest_[label]);
  }
}

Clusters ClusterFit::clusters() const noexcept {
  const FloatMode mode;
  Clusters clusters;
  clusters.boundaries_ = boundaries_;
  clusters.scales_ = scales_of(boundaries_.clusters, least_, greatest_);
  return clusters;
}

Clusters fit_clusters(ClusterLabels labels, ConstByteSpan tensor) noexcept {
  constexpr std::size_t kChunkBytes = 4 * kChunkElements;
  const FloatMode mode;
  ClusterMoments all;
  for (std::size_t first = 0; first < tensor.size(); first += kChunkBytes) {
    const ConstByteSpan chunk = tensor.subspan(first, std::min(kChunkBytes, tensor.size() - first));
    all = sum_of(all, cluster_moments(chunk));
  }
  ClusterFit fit(labels, {&all, 1});
  fit.add(tensor);
  return fit.clusters();
}

Cluster Clusters::cluster(std::size_t label) const noexcept {
  return {.least = std::bit_cast<float>(scales_.least[label]),
          .greatest = std::bit_cast<float>(scales_.greatest[label]),
          .scale = scales_.scale[label],
          .has_numbers = scales_.least[label] != 0x7f800000};
}

double Clusters::absolute_bound() const noexcept {
  const FloatMode mode;
  return bound_of(boundaries_.clusters, scales_);
}

Result<void> Clusters::quantize(DType dtype, ByteSpan elements, std::span<const Beside> beside,
                                ErrorTally* tally) const {
  if (dtype != DType::f32 || !beside.empty()) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("clusters: expected F32 elements without other tensors, found {} with {} tensors",
                            dtype_name(dtype), beside.size()));
  }
  BITSNAP_TRY(check_elements(name(), dtype, elements));
  const auto to_clusters = [this](const Block& block) -> std::size_t {
    std::uint8_t labels[kBlockElements];
    kernels<codec::ClusteredKernels>().find_labels(boundaries_, block.before, block.count, labels);
    kernels<ClusterKernels>().to_clusters(scales_, block.before, labels, block.count, block.elements);
    return 0;
  };
  quantize_blocks(dtype, elements, to_clusters, tally);
  return {};
}

}  // namespace bitsnap::quantize
