// Kernels that find the changed elements of a chunk by class, and apply changes: spec.md, "Sparse".
//
// The elements of a class are those whose base's context has its number in `class_of`. The mask of a class has one bit
// for each of its elements, in order, least significant first, in 64-bit words. Preconditions: a mask has room for
// elements / 64 + 2 words; class_of is below `classes`, which is at most kMaxSparseClasses; nothing overlaps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/ordinal_delta/ordinal_deltas_kernel.hpp"

namespace bitsnap::codec {

// On disk: never change.
inline constexpr std::size_t kMaxSparseClasses = 8;

struct SparseClasses {
  std::size_t classes = 1;
  std::uint8_t class_of[32] = {};  // by context
};

inline constexpr std::size_t kPlacesBehind = 64;

// Indexed by log2 of the element size.
struct SparseChangeKernels {
  // Sets a bit of `mask` (elements / 64 + 1 words) for each element that differs from its base, and writes its context
  // and its delta (element_bytes); returns the number of changed elements. Precondition: `contexts` and `deltas` have
  // room for 64 entries more than there are elements.
  using Find = std::size_t(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                           const DeltaGeometry& geometry, std::uint64_t* mask, std::uint8_t* contexts,
                           std::uint8_t* deltas) noexcept;
  Find* find[3];

  // Writes for each class the places of its changed elements among its elements, from the mask of find(). Precondition:
  // the places of a class have room for kPlacesBehind more than its changed elements.
  using Locate = void(const std::uint8_t* base, const std::uint64_t* mask, std::size_t elements,
                      const DeltaGeometry& geometry, const SparseClasses& classes,
                      std::uint32_t* const* places) noexcept;
  Locate* locate[3];

  // Writes all elements: those that the mask of their class marks are moved by the next delta of the class, the others
  // equal their base. `used` returns the number of deltas used of each class. Precondition: a mask has elements / 64 +
  // 2 words, a class has as many deltas as its mask has set bits, and 64 bytes are readable after them.
  using Place = void(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry,
                     const SparseClasses& classes, const std::uint64_t* const* masks, const std::uint8_t* const* deltas,
                     std::uint8_t* out, std::size_t* used) noexcept;
  Place* place[3];

  static const SparseChangeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
