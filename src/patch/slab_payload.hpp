// What both sides know of a slab's payload: docs/spec/patch.md, "Payload of a slab".
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "patch/patch_layout.hpp"
#include "patch/slab_kernel.hpp"

namespace bitsnap::patch {

// On disk: never change.
enum class SlabMethod : std::uint8_t { whole = 0, changes = 1 };
inline constexpr unsigned kGapWidth = kMostSlabBits;
inline constexpr std::size_t kMostWholeElements = std::size_t{1} << kLeastSlabBits;

// One slab of weights in memory: its pieces, and for each of them its bytes.
struct SlabMemory {
  DType dtype = DType::opaque;
  std::span<const Piece> pieces;
  std::span<const ConstByteSpan> bytes;

  [[nodiscard]] std::size_t element_bytes() const noexcept { return element_size(dtype); }
  // The words of 64 places that the pieces lie in.
  [[nodiscard]] std::size_t words() const noexcept {
    const Piece& last = pieces.back();
    return static_cast<std::size_t>(divide_up<std::uint64_t>(last.first_place + last.elements, kWordElements));
  }
  [[nodiscard]] std::size_t elements() const noexcept {
    std::uint64_t sum = 0;
    for (const Piece& piece : pieces) sum += piece.elements;
    return static_cast<std::size_t>(sum);
  }
};

[[nodiscard]] inline std::size_t first_word(const Piece& piece) noexcept { return piece.first_place / kWordElements; }

// The kernels for the elements of a dtype that has deltas.
[[nodiscard]] inline std::size_t kernel_index(DType dtype) noexcept {
  return static_cast<std::size_t>(std::countr_zero(element_size(dtype)));
}

// How many exponents elements of this dtype have.
[[nodiscard]] constexpr std::uint32_t exponents_of(const codec::DeltaGeometry& geometry) noexcept {
  return std::uint32_t{geometry.exponent_mask} + 1;
}

}  // namespace bitsnap::patch
