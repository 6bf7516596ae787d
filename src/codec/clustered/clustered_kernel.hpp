// Kernels: F32 elements to labels and codes of clusters, and back: spec.md, "Clusters". Each operation is an IEEE 754
// operation in a fixed order. Precondition: a FloatMode is active.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

inline constexpr std::size_t kMostClusters = 256;
inline constexpr std::size_t kFewClusters = 16;  // the clusters that a label of four bits can name

// The label of a number is the number of boundaries at or below it. They are ordinals in two's complement.
struct ClusterBoundaries {
  std::size_t clusters = 0;  // 16 or 256: the number of boundaries plus one
  std::int32_t ordinals[kMostClusters - 1] = {};
};

// For each cluster the bits of its least and greatest number, and the distance between codes. If a cluster is empty,
// the least is infinity and the greatest is negative infinity; if it has one number, the distance is 1.
struct ClusterScales {
  std::uint32_t least[kMostClusters] = {};
  std::uint32_t greatest[kMostClusters] = {};
  double scale[kMostClusters] = {};
};

struct ClusteredKernels {
  // The labels of infinite numbers and NaNs are unspecified.
  void (*find_labels)(const ClusterBoundaries& boundaries, const std::uint8_t* elements, std::size_t count,
                      std::uint8_t* labels) noexcept;

  // The codes of elements with these labels. `missed` is 1 for each element that its code does not restore bit for bit,
  // else 0; returns whether there is one.
  bool (*find_codes)(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                     std::size_t count, std::uint8_t* codes, std::uint8_t* missed) noexcept;

  // Restores elements from labels and codes.
  void (*put_clustered)(const ClusterScales& scales, const std::uint8_t* labels, const std::uint8_t* codes,
                        std::size_t count, std::uint8_t* out) noexcept;

  // Labels of four bits, two in a byte, the first in the lower half; after an odd number of labels the upper half is 0.
  // Buffers hold one byte per label, rounded up to whole bytes.
  void (*pack_labels)(const std::uint8_t* labels, std::size_t count, std::uint8_t* packed) noexcept;
  void (*unpack_labels)(const std::uint8_t* packed, std::size_t count, std::uint8_t* labels) noexcept;

  static const ClusteredKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
