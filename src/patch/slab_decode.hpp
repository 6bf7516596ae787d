// The reading side of a slab: docs/spec/patch.md, "Payload of a slab".
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/scratch.hpp"
#include "patch/slab_payload.hpp"

namespace bitsnap::patch {

// What changes in a slab.
struct StagedSlab {
  bool is_whole = false;              // `values` has all elements of the slab, and `places` is empty
  std::vector<std::uint32_t> places;  // in the slab: first of the listed elements, then of the dense ones; both ascend
  std::size_t listed = 0;             // elements
  std::vector<std::byte> values;
  std::vector<bool> changed;  // of a whole slab: which of its elements change

  // The two ascending parts of `places`.
  [[nodiscard]] std::array<std::span<const std::uint32_t>, 2> parts() const noexcept {
    return {std::span(places).first(listed), std::span(places).subspan(listed)};
  }

  [[nodiscard]] std::size_t bytes() const noexcept {
    return places.size() * sizeof(std::uint32_t) + values.size() + changed.size() / 8;
  }
  [[nodiscard]] std::size_t changed_elements() const noexcept {
    return is_whole ? static_cast<std::size_t>(std::count(changed.begin(), changed.end(), true)) : places.size();
  }
};

// corrupt, truncated or unsupported for a payload that the document forbids. On success, the whole base was added to
// `hasher`; whatever the base is, the result lies in the slab, but it is right only if the hash is.
[[nodiscard]] Result<void> decode_slab(ConstByteSpan payload, const SlabMemory& base, Scratch& scratch,
                                       SlabHasher& hasher, StagedSlab& to);

// Writes the changes to a part of the slab: `piece`, whose bytes are `out`. `at`: where the piece begins in a whole
// slab, in elements.
void write_changes(const StagedSlab& slab, const Piece& piece, std::size_t at, std::size_t element_bytes,
                   ByteSpan out) noexcept;

}  // namespace bitsnap::patch
