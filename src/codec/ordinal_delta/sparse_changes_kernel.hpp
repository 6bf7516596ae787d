// Between a chunk's elements and the changed ones among them by class: spec.md, "Sparse". One per CPU level; all give
// the same.
//
// A class's mask has a bit for each of its elements in the chunk, in their order, least significant first, in words of
// 64; its elements are those whose base's context has its number in `class_of`. Kernels: they allocate nothing and
// cannot fail. Preconditions: a mask has room for elements / 64 + 2 words; class_of is below `classes`, which is at
// most kMaxSparseClasses; nothing overlaps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/ordinal_delta/ordinal_steps_kernel.hpp"

namespace bitsnap::codec {

// On disk: never change.
inline constexpr std::size_t kMaxSparseClasses = 8;

struct SparseClasses {
  std::size_t classes = 1;
  std::uint8_t class_of[32] = {};  // by context
};

inline constexpr std::size_t kPlacesBehind = 64;

// By the logarithm of the element's bytes: 1, 2 or 4.
struct SparseChangeKernels {
  // Sets a bit of `mask` (elements / 64 + 1 words) for each element that differs from its base, and writes for each in
  // order its context and its steps, as many bytes as an element; returns how many there are. Precondition: `contexts`
  // and `steps` have room for 64 more than there are elements.
  using Find = std::size_t(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                           const StepGeometry& geometry, std::uint64_t* mask, std::uint8_t* contexts,
                           std::uint8_t* steps) noexcept;
  Find* find[3];

  // Writes for each class the places of its changed elements among its elements, as a mask of find() has them.
  // Precondition: a class's places have room for kPlacesBehind more than it has changed elements.
  using Locate = void(const std::uint8_t* base, const std::uint64_t* mask, std::size_t elements,
                      const StepGeometry& geometry, const SparseClasses& classes,
                      std::uint32_t* const* places) noexcept;
  Locate* locate[3];

  // Writes all elements: those that the mask of their class marks, which counts its elements alone, moved by the next
  // of its class's steps, the others as their base. `used` gets how many steps of each class were taken. Precondition:
  // a mask has elements / 64 + 2 words, a class as many steps as its mask has bits set, and 64 bytes are readable
  // behind them.
  using Place = void(const std::uint8_t* base, std::size_t elements, const StepGeometry& geometry,
                     const SparseClasses& classes, const std::uint64_t* const* masks, const std::uint8_t* const* steps,
                     std::uint8_t* out, std::size_t* used) noexcept;
  Place* place[3];

  static const SparseChangeKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::codec
