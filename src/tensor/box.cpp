#include "tensor/box.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace bitsnap::tensor {

std::optional<std::uint64_t> volume(std::span<const std::uint64_t> extent) noexcept {
  std::optional<std::uint64_t> elements = 1;
  for (const std::uint64_t size : extent) elements = elements ? checked_multiply(*elements, size) : std::nullopt;
  return elements;
}

bool lies_in(const Box& box, std::span<const std::uint64_t> shape) noexcept {
  if (box.offset.size() != shape.size() || box.extent.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (box.offset[i] > shape[i] || box.extent[i] > shape[i] - box.offset[i]) return false;
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common = a;
  for (std::size_t i = 0; i < a.offset.size(); ++i) {
    const std::uint64_t begin = std::max(a.offset[i], b.offset[i]);
    const std::uint64_t end = std::min(a.offset[i] + a.extent[i], b.offset[i] + b.extent[i]);
    if (begin >= end) return std::nullopt;
    common.offset[i] = begin;
    common.extent[i] = end - begin;
  }
  return common;
}

Coverage cover(std::span<const Box> boxes) {
  constexpr std::uint64_t kMostComparisons = std::uint64_t{1} << 24U;
  Coverage coverage;
  std::uint64_t comparisons = 0;
  for (std::size_t a = 0; a < boxes.size(); ++a) {
    const Box& box = boxes[a];
    coverage.covered += volume(box.extent).value_or(0);
    // The others begin behind this one in the first dimension.
    for (std::size_t b = a + 1;
         b < boxes.size() && (box.offset.empty() || boxes[b].offset[0] < box.offset[0] + box.extent[0]); ++b) {
      if (++comparisons > kMostComparisons) {
        coverage.has_too_many = true;
        return coverage;
      }
      if (!coverage.overlap && intersection(box, boxes[b])) coverage.overlap = {a, b};
    }
    if (coverage.overlap) return coverage;
  }
  return coverage;
}

}  // namespace bitsnap::tensor
