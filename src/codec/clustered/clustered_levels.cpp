// Loops that compilers vectorize at each CPU level.
#include "codec/clustered/clustered_kernel.hpp"

#include "codec/clustered/cluster_arithmetic.hpp"

namespace bitsnap::codec {
namespace {

void find_labels(const ClusterBoundaries& boundaries, const std::uint8_t* __restrict elements, std::size_t total,
                 std::uint8_t* __restrict labels) noexcept {
  const std::int32_t* const ordinals = boundaries.ordinals;
  if (boundaries.clusters == kFewClusters) {
    for (std::size_t i = 0; i < total; ++i) {
      const std::int32_t x = ordinal_of(load_at<std::uint32_t>(elements, i));
      std::int32_t label = 0;
      for (std::size_t j = 0; j < kFewClusters - 1; ++j) label += x >= ordinals[j] ? 1 : 0;
      labels[i] = static_cast<std::uint8_t>(label);
    }
    return;
  }
  // One halving for all elements of a run, then the next.
  for (std::size_t first = 0; first < total; first += kClusterRun) {
    const std::size_t count = total - first < kClusterRun ? total - first : kClusterRun;
    std::int32_t numbers[kClusterRun];
    std::uint32_t found[kClusterRun];  // the number of boundaries found at or below the number
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = ordinal_of(load_at<std::uint32_t>(elements, first + i));
      found[i] = 0;
    }
    for (std::uint32_t step = kMostClusters / 2; step > 0; step /= 2) {
      for (std::size_t i = 0; i < count; ++i) found[i] += step & mask_of(numbers[i] >= ordinals[found[i] + step - 1]);
    }
    for (std::size_t i = 0; i < count; ++i) labels[first + i] = static_cast<std::uint8_t>(found[i]);
  }
}

// The numbers that a run's elements are computed from. They are looked up one by one, so that the rest can use vectors.
struct RunScales {
  std::uint32_t least[kClusterRun];
  std::uint32_t greatest[kClusterRun];
  double scale[kClusterRun];

  void look_up(const ClusterScales& scales, const std::uint8_t* labels, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t label = labels[i];
      least[i] = scales.least[label];
      greatest[i] = scales.greatest[label];
      scale[i] = scales.scale[label];
    }
  }
};

bool find_codes(const ClusterScales& scales, const std::uint8_t* __restrict elements,
                const std::uint8_t* __restrict labels, std::size_t total, std::uint8_t* __restrict codes,
                std::uint8_t* __restrict missed) noexcept {
  RunScales run;
  std::uint32_t any = 0;
  for (std::size_t first = 0; first < total; first += kClusterRun) {
    const std::size_t count = total - first < kClusterRun ? total - first : kClusterRun;
    run.look_up(scales, labels + first, count);
    std::uint32_t found[kClusterRun];
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t bits = load_at<std::uint32_t>(elements, first + i);
      const std::uint32_t least = run.least[i];
      const std::uint32_t greatest = run.greatest[i];
      const std::uint32_t within = is_within(bits, least, greatest);
      const double offset = number_of(least & within);
      const double code = code_of(number_of(bits & within), offset, run.scale[i]);
      const auto whole = static_cast<std::uint32_t>(static_cast<std::int32_t>(code));
      const std::uint32_t coded = coded_bits(least, greatest, offset, run.scale[i], code, whole);
      const std::uint32_t miss = ~(within & mask_of(coded == bits)) & 0x100;
      found[i] = whole | miss;
      any |= miss;
    }
    for (std::size_t i = 0; i < count; ++i) codes[first + i] = static_cast<std::uint8_t>(found[i]);
    for (std::size_t i = 0; i < count; ++i) missed[first + i] = static_cast<std::uint8_t>(found[i] >> 8);
  }
  return any != 0;
}

void put_clustered(const ClusterScales& scales, const std::uint8_t* __restrict labels,
                   const std::uint8_t* __restrict codes, std::size_t total, std::uint8_t* __restrict out) noexcept {
  RunScales run;
  for (std::size_t first = 0; first < total; first += kClusterRun) {
    const std::size_t count = total - first < kClusterRun ? total - first : kClusterRun;
    run.look_up(scales, labels + first, count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t whole = codes[first + i];
      const double code = static_cast<std::int32_t>(whole);
      const std::uint32_t bits =
          coded_bits(run.least[i], run.greatest[i], number_of(run.least[i]), run.scale[i], code, whole);
      store_at(out, first + i, bits);
    }
  }
}

void pack_labels(const std::uint8_t* __restrict labels, std::size_t count, std::uint8_t* __restrict packed) noexcept {
  for (std::size_t i = 0; i < count / 2; ++i) {
    packed[i] = static_cast<std::uint8_t>(labels[2 * i] | labels[2 * i + 1] << 4);
  }
  if (count % 2 != 0) packed[count / 2] = labels[count - 1];
}

void unpack_labels(const std::uint8_t* __restrict packed, std::size_t count, std::uint8_t* __restrict labels) noexcept {
  for (std::size_t i = 0; i < count / 2; ++i) {
    labels[2 * i] = packed[i] & 15;
    labels[2 * i + 1] = packed[i] >> 4;
  }
  if (count % 2 != 0) labels[count - 1] = packed[count / 2] & 15;
}

}  // namespace

constinit const ClusteredKernels ClusteredKernels::BITSNAP_KERNEL_LEVEL = {
    codec::find_labels, codec::find_codes, codec::put_clustered, codec::pack_labels, codec::unpack_labels};

}  // namespace bitsnap::codec
