// Kernels over the elements of a slab, 64 at a time: a word has one bit for each of 64 elements, least significant
// first. docs/spec/patch.md, "Slabs".
//
// The members of a class are the elements whose magnitude, the bits without the sign, lies between two limits. The rank
// of a member is its number among the members of its class in the slab. Buffers have room for all words of the
// elements; the bits of a last, incomplete word are 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bitsnap::patch {

inline constexpr std::size_t kWordElements = 64;
// On disk: never change.
inline constexpr std::size_t kMaxClasses = 8;

// Where the dense elements end and the classes lie, as limits of magnitudes: dense elements are below limits[0], those
// of class i from limits[i] to below limits[i + 1]; the others belong to no class. A limit may be one more than the
// largest magnitude.
struct SlabClasses {
  std::size_t classes = 0;
  std::uint32_t limits[kMaxClasses + 1] = {};
};

// The ascending ranks of the changed members of a class, and how many of its members, and of the ranks, have passed.
struct ClassRanks {
  std::uint32_t* ranks = nullptr;
  std::size_t count = 0;
  std::size_t next = 0;
  std::uint32_t passed = 0;
};

// Indexed by log2 of the element size: elements of 1, 2 and 4 bytes.
struct SlabKernels {
  // A bit for each element that differs; returns how many do.
  using Differ = std::size_t(const std::uint8_t* a, const std::uint8_t* b, std::size_t elements,
                             std::uint64_t* words) noexcept;
  Differ* differ[3];

  // The bits of dense elements, and how many there are; writes the ranks of changed members. Precondition: there is
  // room for the ranks of all changed elements in each class.
  struct Ranked {
    std::size_t dense = 0;
    std::size_t dense_changed = 0;
  };
  using Rank = Ranked(const std::uint8_t* base, std::size_t elements, const SlabClasses& classes,
                      const std::uint64_t* changed, std::uint64_t* dense, ClassRanks* ranks) noexcept;
  Rank* rank[3];

  // The other way: sets the bits of `changed` of the members with the next ranks. Returns the number of dense elements.
  using Place = std::size_t(const std::uint8_t* base, std::size_t elements, const SlabClasses& classes,
                            std::uint64_t* dense, std::uint64_t* changed, ClassRanks* ranks) noexcept;
  Place* place[3];

  // The places of the bits of `words`, from `first_place` on. Returns how many there are. Precondition: room for 64
  // more.
  std::size_t (*list)(const std::uint64_t* words, std::size_t count, std::uint32_t first_place,
                      std::uint32_t* places) noexcept;

  // Copies the elements at `places`, of which `first_place` is the first of `from`.
  using Take = void(const std::uint8_t* from, const std::uint32_t* places, std::size_t count, std::uint32_t first_place,
                    std::uint8_t* out) noexcept;
  Take* take[3];

  // Moves each of `count` elements by so many ULPs, modulo all bit patterns. `elements` may be `out`.
  using Move = void(const std::uint8_t* elements, const std::uint8_t* moves, std::size_t count,
                    std::uint8_t* out) noexcept;
  Move* move[3];

  // Of the elements that differ from their base, places and values, without gaps. Returns how many there are.
  // Precondition: both outputs have room for one element more.
  using Pick = std::size_t(const std::uint8_t* elements, const std::uint8_t* base, const std::uint32_t* places,
                           std::size_t count, std::uint8_t* out, std::uint32_t* out_places) noexcept;
  Pick* pick[3];

  static const SlabKernels kScalar, kAvx2, kAvx512;
};

}  // namespace bitsnap::patch
