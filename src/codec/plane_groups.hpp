// Byte planes in groups, which byte_group and float_split share: docs/spec/codecs.md, "Plane groups".
//
// A chunk is divided into groups of entropy::kBlockBytes elements. Each byte plane of a group is one block of the
// block coder, and the planes of a group stay in the second-level cache between splitting and coding.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/scratch.hpp"
#include "entropy/byte_block.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::codec {

// The transformation of elements before they are split into planes.
enum class PlaneForm : std::uint8_t {
  plain,
  rotated,           // left by one bit, which moves the sign below the mantissa; elements of 2, 4 or 8 bytes
  unsigned_rotated,  // the same for elements without signs: plane 0 has seven bits per element and is packed
  xor_base,          // XOR with the base
};

// A chunk, or its first elements, as planes.
struct PlaneGeometry {
  std::size_t elements = 0;
  std::size_t element_bytes = 0;
  PlaneForm form = PlaneForm::plain;
  const std::byte* base = nullptr;  // elements * element_bytes bytes; for xor_base
};

using PlanePointers = std::array<std::byte*, entropy::kMaxElementSize>;

// Pointers to the planes of one group, which lie in `memory` at distances of `stride` bytes.
[[nodiscard]] inline PlanePointers plane_pointers(std::byte* memory, std::size_t element_bytes,
                                                  std::size_t stride) noexcept {
  PlanePointers planes{};
  for (std::size_t k = 0; k < element_bytes; ++k) planes[k] = memory + k * stride;
  return planes;
}

// Decodes the whole payload into `out` (elements * element_bytes bytes); truncated or corrupt if it is invalid.
[[nodiscard]] Result<void> decode_plane_groups(ConstByteSpan payload, const PlaneGeometry& geometry, ByteSpan out,
                                               Scratch& scratch);

}  // namespace bitsnap::codec
