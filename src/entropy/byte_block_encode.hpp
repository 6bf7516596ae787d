// The block coder over byte planes, encoding side: docs/spec/entropy.md.
//
// Each block takes its shortest mode. A block that a sample shows to be incompressible is stored raw without further
// analysis. The bytes depend on the plane alone, not on CPU level or thread. The functions own nothing; each thread
// uses its own Scratch.
//
// The plane is read more than once and must not change meanwhile: copy memory that others may write to first.
#pragma once

#include <cstddef>

#include "entropy/byte_block.hpp"

namespace bitsnap::entropy {

// The most that encode_plane may need: every block raw, with its mode byte.
[[nodiscard]] constexpr std::size_t max_encoded_plane_size(std::size_t plane_bytes) noexcept {
  return plane_bytes + plane_bytes / kBlockBytes + (plane_bytes % kBlockBytes != 0 ? 1 : 0);
}

// Writes all blocks of a plane to the front of `out` and returns the bytes written. `out` must hold
// max_encoded_plane_size(plane.size()) bytes (else invalid_argument) and must not overlap the plane; bytes of `out`
// after the returned size may be overwritten.
[[nodiscard]] Result<std::size_t> encode_plane(ConstByteSpan plane, ByteSpan out, Scratch& scratch);

// The size that encode_plane would return, or up to 32 bytes a block more, without encoding. For choosing codecs.
[[nodiscard]] Result<std::size_t> encoded_plane_size(ConstByteSpan plane, Scratch& scratch);

}  // namespace bitsnap::entropy
