// Loops that compilers vectorize at each CPU level.
#include "quantize/clusters_kernel.hpp"

#include "codec/clustered/cluster_arithmetic.hpp"
#include "quantize/lanes_loop.hpp"

namespace bitsnap::quantize {
namespace {

ClusterMoments moments(const std::uint8_t* elements, std::size_t total) noexcept {
  constexpr std::uint32_t kMagnitude = 0x7fffffff;
  constexpr std::uint32_t kInfinity = 0x7f800000;
  double numbers[kLaneRun];
  double squares[kLaneRun];
  double sums[kLanes] = {};
  double square_sums[kLanes] = {};
  ClusterMoments all;
  for (std::size_t first = 0; first < total; first += kLaneRun) {
    const std::size_t count = total - first < kLaneRun ? total - first : kLaneRun;
    std::uint32_t finite = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = load_at<std::uint32_t>(elements, first + i);
      const std::uint32_t is_finite = mask_of((bits & kMagnitude) < kInfinity);
      const double x = codec::number_of(bits & is_finite);
      numbers[i] = x;
      squares[i] = x * x;
      finite += is_finite & 1;
    }
    all.finite += finite;
    const std::size_t padded = pad_run(numbers, squares, count);
    add_to_lanes(numbers, padded, sums);
    add_to_lanes(squares, padded, square_sums);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    all.sum += sums[lane];
    all.sum_square += square_sums[lane];
  }
  return all;
}

void to_clusters(const ClusterScales& scales, const std::uint8_t* __restrict elements,
                 const std::uint8_t* __restrict labels, std::size_t total, std::uint8_t* __restrict out) noexcept {
  // Looked up one by one, so that the rest can use vectors.
  std::uint32_t leasts[kLaneRun];
  std::uint32_t greatests[kLaneRun];
  double steps[kLaneRun];
  for (std::size_t first = 0; first < total; first += kLaneRun) {
    const std::size_t count = total - first < kLaneRun ? total - first : kLaneRun;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t label = labels[first + i];
      leasts[i] = scales.least[label];
      greatests[i] = scales.greatest[label];
      steps[i] = scales.scale[label];
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = load_at<std::uint32_t>(elements, first + i);
      const std::uint32_t least = leasts[i];
      const std::uint32_t greatest = greatests[i];
      const double scale = steps[i];
      const std::uint32_t is_within = codec::is_within(bits, least, greatest);
      const double offset = codec::number_of(least & is_within);
      const double code = codec::code_of(codec::number_of(bits & is_within), offset, scale);
      const auto whole = static_cast<std::uint32_t>(static_cast<std::int32_t>(code));
      const std::uint32_t coded = codec::coded_bits(least, greatest, offset, scale, code, whole);
      store_at(out, first + i, (coded & is_within) | (bits & ~is_within));
    }
  }
}

}  // namespace

constinit const ClusterKernels ClusterKernels::BITSNAP_KERNEL_LEVEL = {quantize::moments, quantize::to_clusters};

}  // namespace bitsnap::quantize
