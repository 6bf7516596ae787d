// Byte planes in groups: the payload form that byte_group and float_split share. docs/spec/codecs.md, "Plane groups".
//
// A chunk is cut into groups of entropy::kBlockBytes elements, so that each byte plane of a group is one block of the
// entropy coder and a group's planes stay in the second-level cache between splitting and coding.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/scratch.hpp"
#include "entropy/byte_block.hpp"
#include "entropy/planes.hpp"

namespace bitsnap::codec {

// What is done to the elements before they are split into planes.
enum class PlaneForm : std::uint8_t {
  plain,
  rotated,           // left by one bit, which moves the sign below the mantissa; elements of 2, 4 or 8 bytes
  unsigned_rotated,  // the same for elements without sign: plane 0 has seven bits an element and is packed
  xor_base,          // XOR with the base
};

// A chunk, or the first elements of one, as planes.
struct PlaneGeometry {
  std::size_t elements = 0;
  std::size_t element_bytes = 0;
  PlaneForm form = PlaneForm::plain;
  const std::byte* base = nullptr;  // elements * element_bytes bytes; for xor_base
};

using PlanePointers = std::array<std::byte*, entropy::kMaxElementSize>;

// Pointers to the planes of one group, one behind the other in `memory` at a distance of `stride` bytes.
[[nodiscard]] inline PlanePointers plane_pointers(std::byte* memory, std::size_t element_bytes,
                                                  std::size_t stride) noexcept {
  PlanePointers planes{};
  for (std::size_t k = 0; k < element_bytes; ++k) planes[k] = memory + k * stride;
  return planes;
}

// Decodes the whole payload into `out` (elements * element_bytes bytes); truncated or corrupt where it is not one.
[[nodiscard]] Result<void> decode_plane_groups(ConstByteSpan payload, const PlaneGeometry& geometry, ByteSpan out,
                                               Scratch& scratch);

}  // namespace bitsnap::codec
