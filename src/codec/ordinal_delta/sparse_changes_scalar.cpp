// The scalar kernels for the changed elements by class.
#include "codec/ordinal_delta/sparse_changes_kernel.hpp"

#include "codec/ordinal_delta/ordinal_arithmetic.hpp"

namespace bitsnap::codec {
namespace {

template <typename Element>
std::size_t find(const std::uint8_t* data, const std::uint8_t* base, std::size_t elements,
                 const DeltaGeometry& geometry, std::uint64_t* mask, std::uint8_t* contexts,
                 std::uint8_t* deltas) noexcept {
  std::size_t found = 0;
  for (std::size_t word = 0; word <= elements / 64; ++word) mask[word] = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const auto element = load_at<Element>(data, i);
    const auto from = load_at<Element>(base, i);
    if (element == from) continue;
    mask[i / 64] |= std::uint64_t{1} << i % 64;
    contexts[found] = context_of(from, geometry);
    const auto delta = static_cast<Element>(reflected(element) - reflected(from));
    __builtin_memcpy(deltas + found * sizeof(Element), &delta, sizeof(Element));
    ++found;
  }
  return found;
}

template <typename Element>
void locate(const std::uint8_t* base, const std::uint64_t* mask, std::size_t elements, const DeltaGeometry& geometry,
            const SparseClasses& classes, std::uint32_t* const* places) noexcept {
  std::uint32_t passed[kMaxSparseClasses] = {};
  std::size_t found[kMaxSparseClasses] = {};
  for (std::size_t i = 0; i < elements; ++i) {
    const std::size_t own = classes.class_of[context_of(load_at<Element>(base, i), geometry)];
    if ((mask[i / 64] >> i % 64 & 1) != 0) places[own][found[own]++] = passed[own];
    ++passed[own];
  }
}

template <typename Element>
void place(const std::uint8_t* base, std::size_t elements, const DeltaGeometry& geometry, const SparseClasses& classes,
           const std::uint64_t* const* masks, const std::uint8_t* const* deltas, std::uint8_t* out,
           std::size_t* used) noexcept {
  std::size_t passed[kMaxSparseClasses] = {};
  for (std::size_t c = 0; c < classes.classes; ++c) used[c] = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    Element element = load_at<Element>(base, i);
    const std::size_t own = classes.class_of[context_of(element, geometry)];
    const std::size_t at = passed[own]++;
    if ((masks[own][at / 64] >> at % 64 & 1) != 0) {
      element = moved_by(element, load_at<Element>(deltas[own], used[own]++));
    }
    __builtin_memcpy(out + i * sizeof(Element), &element, sizeof(Element));
  }
}

}  // namespace

constinit const SparseChangeKernels SparseChangeKernels::kScalar = {
    {codec::find<std::uint8_t>, codec::find<std::uint16_t>, codec::find<std::uint32_t>},
    {codec::locate<std::uint8_t>, codec::locate<std::uint16_t>, codec::locate<std::uint32_t>},
    {codec::place<std::uint8_t>, codec::place<std::uint16_t>, codec::place<std::uint32_t>}};

}  // namespace bitsnap::codec
