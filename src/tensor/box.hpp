// Boxes: the part of a tensor from an offset over an extent in each dimension. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace bitsnap::tensor {

// Offset and extent are elements in each dimension, and have the same number of dimensions.
struct Box {
  std::vector<std::uint64_t> offset;
  std::vector<std::uint64_t> extent;

  friend bool operator==(const Box&, const Box&) = default;
  friend auto operator<=>(const Box&, const Box&) = default;
};

// Elements; nullopt if they do not fit in 64 bits.
[[nodiscard]] std::optional<std::uint64_t> volume(std::span<const std::uint64_t> extent) noexcept;

// Whether a box lies in a tensor of this shape. False for another number of dimensions.
[[nodiscard]] bool lies_in(const Box& box, std::span<const std::uint64_t> shape) noexcept;

// The elements that two boxes of one tensor have in common; nullopt if there are none.
[[nodiscard]] std::optional<Box> intersection(const Box& a, const Box& b);

// Whether boxes cover another box exactly.
struct Coverage {
  std::uint64_t covered = 0;  // elements of all boxes together
  // Two boxes with an element in common, by their numbers.
  struct Overlap {
    std::size_t first = 0;
    std::size_t second = 0;
  };
  std::optional<Overlap> overlap = {};
  bool has_too_many = false;  // more boxes than can be compared; nothing else is known then
};

// Precondition: each box lies in the whole, is not empty, and the boxes ascend (operator<=>). Compares boxes that
// meet in the first dimension, at most 2^24 pairs. The whole is covered once if nothing overlaps and `covered` is its
// volume.
[[nodiscard]] Coverage cover(std::span<const Box> boxes);

}  // namespace bitsnap::tensor
