// Between elements, and the labels and codes of the clusters that they are of: spec.md, "Clusters". One per CPU level;
// all give the same bits, as each operation is one of IEEE 754 in a fixed order.
//
// Kernels: they allocate nothing and cannot fail. Elements are F32 and need no alignment; outputs must not overlap
// inputs. Precondition: the thread computes as a FloatMode says.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::codec {

inline constexpr std::size_t kMostClusters = 256;
inline constexpr std::size_t kFewClusters = 16;  // as many as a label of four bits tells

// What a number's label is found by: how many boundaries are not above it. By ordinals, as integers of two's
// complement.
struct ClusterBoundaries {
  std::size_t clusters = 0;  // 16 or 256: one more than there are boundaries
  std::int32_t ordinals[kMostClusters - 1] = {};
};

// Of each cluster the bits of its least and its greatest number, and how far codes are apart. Where a cluster has no
// numbers, the least is infinity and the greatest its negative; where they are one, the scale is 1.
struct ClusterScales {
  std::uint32_t least[kMostClusters] = {};
  std::uint32_t greatest[kMostClusters] = {};
  double scale[kMostClusters] = {};
};

struct ClusteredKernels {
  // Labels of infinite numbers and NaNs mean nothing.
  void (*find_labels)(const ClusterBoundaries& boundaries, const std::uint8_t* elements, std::size_t count,
                      std::uint8_t* labels) noexcept;

  // Codes of elements with these labels. Whether there are elements that their code does not give to the bit: `missed`
  // is 1 for those, and 0 for all others.
  bool (*find_codes)(const ClusterScales& scales, const std::uint8_t* elements, const std::uint8_t* labels,
                     std::size_t count, std::uint8_t* codes, std::uint8_t* missed) noexcept;

  // And back.
  void (*put_clustered)(const ClusterScales& scales, const std::uint8_t* labels, const std::uint8_t* codes,
                        std::size_t count, std::uint8_t* out) noexcept;

  // Labels of four bits, two in a byte, the first in the lower ones; of an odd last one the upper bits are 0. And back.
  // Buffers may be as many bytes as there are labels, rounded up to whole bytes.
  void (*pack_labels)(const std::uint8_t* labels, std::size_t count, std::uint8_t* packed) noexcept;
  void (*unpack_labels)(const std::uint8_t* packed, std::size_t count, std::uint8_t* labels) noexcept;

  static const ClusteredKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
