// Fits clusters in two passes, and quantizes block by block. Boundaries, scales and bounds are computed once per
// tensor.
#include "quantize/clusters.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <bitsnap/tensor.hpp>

#include "base/cpu_dispatch.hpp"
#include "base/float_mode.hpp"
#include "codec/clustered/cluster_arithmetic.hpp"
#include "quantize/quantize_blocks.hpp"

namespace bitsnap::quantize {
namespace {

// The quantiles j / 256 of the standard normal distribution for j from 129, in millionths; those for j below 128 are
// the negatives.
constexpr std::int32_t kQuantiles[127] = {
    9792,    19584,   29379,   39176,   48977,   58783,   68594,   78412,   88238,   98072,   107916,  117770,  127635,
    137513,  147405,  157311,  167232,  177170,  187125,  197099,  207093,  217107,  227143,  237202,  247285,  257394,
    267528,  277690,  287881,  298102,  308355,  318639,  328958,  339312,  349702,  360130,  370597,  381105,  391656,
    402250,  412890,  423576,  434311,  445097,  455934,  466825,  477772,  488776,  499840,  510966,  522155,  533410,
    544733,  556126,  567591,  579132,  590751,  602449,  614231,  626099,  638056,  650104,  662248,  674490,  686834,
    699283,  711842,  724514,  737304,  750215,  763253,  776422,  789727,  803173,  816765,  830511,  844415,  858484,
    872726,  887147,  901754,  916557,  931563,  946782,  962223,  977898,  993816,  1009990, 1026433, 1043158, 1060180,
    1077516, 1095181, 1113194, 1131577, 1150349, 1169537, 1189164, 1209261, 1229859, 1250992, 1272699, 1295022, 1318011,
    1341718, 1366204, 1391537, 1417797, 1445073, 1473468, 1503103, 1534121, 1566689, 1601009, 1637325, 1675940, 1717228,
    1761670, 1809892, 1862732, 1921351, 1987428, 2063528, 2153875, 2266227, 2417559, 2660067,
};

double quantile(std::size_t j) noexcept {
  if (j == 128) return 0;
  const std::int32_t millionths = j > 128 ? kQuantiles[j - 129] : -kQuantiles[127 - j];
  return static_cast<double>(millionths) / 1e6;
}

}  // namespace

ClusterMoments sum_of(const ClusterMoments& all, const ClusterMoments& next) noexcept {
  return {
      .finite = all.finite + next.finite, .sum = all.sum + next.sum, .sum_square = all.sum_square + next.sum_square};
}

ClusterBoundaries boundaries_of(std::size_t clusters, std::span<const ClusterMoments> moments) noexcept {
  ClusterMoments all;
  for (const ClusterMoments& chunk : moments) all = sum_of(all, chunk);
  double mean = 0;
  double deviation = 0;
  if (all.finite > 0) {
    const auto count = static_cast<double>(all.finite);
    mean = all.sum / count;
    const double variance = all.sum_square / count - mean * mean;
    deviation = variance > 0 ? std::sqrt(variance) : 0;
  }
  ClusterBoundaries boundaries{.clusters = clusters};
  for (std::size_t j = 1; j < clusters; ++j) {
    const auto boundary = static_cast<float>(mean + deviation * quantile(j * (kMostClusters / clusters)));
    boundaries.ordinals[j - 1] = codec::ordinal_of(__builtin_bit_cast(std::uint32_t, boundary));
  }
  return boundaries;
}

void widen_extents(const std::uint8_t* elements, const std::uint8_t* labels, std::size_t count, std::int32_t* least,
                   std::int32_t* greatest) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = load_at<std::uint32_t>(elements, i);
    if ((bits & 0x7fffffff) >= 0x7f800000) continue;
    const std::int32_t ordinal = codec::ordinal_of(bits);
    const std::size_t label = labels[i];
    if (ordinal < least[label]) least[label] = ordinal;
    if (ordinal > greatest[label]) greatest[label] = ordinal;
  }
}

ClusterScales scales_of(std::size_t clusters, const std::int32_t* least, const std::int32_t* greatest) noexcept {
  ClusterScales scales;
  for (std::size_t label = 0; label < kMostClusters; ++label) {
    if (label >= clusters || least[label] > greatest[label]) {
      scales.least[label] = 0x7f800000;
      scales.greatest[label] = 0xff800000;
      scales.scale[label] = 1;
      continue;
    }
    scales.least[label] = codec::bits_of(least[label]);
    scales.greatest[label] = codec::bits_of(greatest[label]);
    scales.scale[label] = codec::scale_between(scales.least[label], scales.greatest[label]);
  }
  return scales;
}

double bound_of(std::size_t clusters, const ClusterScales& scales) noexcept {
  double bound = 0;
  for (std::size_t label = 0; label < clusters; ++label) {
    const double least = codec::number_of(scales.least[label]);
    const double greatest = codec::number_of(scales.greatest[label]);
    if (least >= greatest) continue;
    // Rounding to F32 moves a number by at most 2^-24 of itself, or by half of the smallest subnormal.
    const double most = std::max(std::abs(least), std::abs(greatest));
    bound = std::max(bound, scales.scale[label] / 2 + std::max(most * 0x1p-24, 0x1p-150));
  }
  return bound;
}

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
