// The block coder over byte planes, encoding side: docs/spec/entropy.md.
//
// For each block the shortest form is taken among fill, Huffman, sparse and raw; a block that a sample shows to be
// incompressible is copied without being looked at closely. Same plane, same bytes: on every CPU level and in every
// thread. Functions here own and keep nothing; each thread brings a Scratch of its own.
//
// The plane must not change while it is read (it is read more than once): copy what others may write to first.
#pragma once

#include <cstddef>

#include "entropy/byte_block.hpp"

namespace bitsnap::entropy {

// What encode_plane may need at most for a plane of this size: every block raw, and its mode byte.
[[nodiscard]] constexpr std::size_t max_encoded_plane_size(std::size_t plane_bytes) noexcept {
  return plane_bytes + plane_bytes / kBlockBytes + (plane_bytes % kBlockBytes != 0 ? 1 : 0);
}

// Writes all blocks of a plane one after another to the front of `out` and returns how many bytes that took. `out` must
// hold max_encoded_plane_size(plane.size()) bytes (else invalid_argument) and must not overlap the plane; bytes of
// `out` behind the returned size may be overwritten.
[[nodiscard]] Result<std::size_t> encode_plane(ConstByteSpan plane, ByteSpan out, Scratch& scratch);

// What encode_plane would return, or up to 32 bytes a block more, without the encoding: for choosing between codecs.
[[nodiscard]] Result<std::size_t> encoded_plane_size(ConstByteSpan plane, Scratch& scratch);

}  // namespace bitsnap::entropy
