// The block coder over byte planes, decoding side: docs/spec/entropy.md.
//
// A plane is divided into blocks of kBlockBytes (the last one may be shorter). Each block is stored as raw bytes, as
// one repeated byte, Huffman coded, or sparse. The functions are pure; any thread may call them, each with its own
// Scratch. byte_block_encode.hpp is the encoding side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/scratch.hpp"

namespace bitsnap::entropy {

// The bytes of a plane in one block. On disk: never change.
inline constexpr std::size_t kBlockBytes = 65536;

// The nesting of sparse blocks: a block and its mask may be sparse. On disk: never change.
inline constexpr std::size_t kMaxSparseLevels = 2;

// The first byte of a block. On disk: never change or reuse.
enum class BlockMode : std::uint8_t {
  raw = 0,      // the bytes themselves
  fill = 1,     // one byte, repeated
  huffman = 2,  // canonical Huffman code in interleaved streams
  sparse = 3,   // nearly all bytes are equal: a mask of the other places, and the bytes there
};

// Decodes exactly plane.size() bytes from the front of `payload` and returns the payload bytes that this used; the
// caller compares them with its expectation. The spans must not overlap.
//
// Any payload gives a full plane or an error (`truncated`, `corrupt`) that names the block and the offset. The time
// is bounded by the plane's size. After an error, the contents of `plane` are unspecified. Damage that leaves the
// structure valid decodes to wrong bytes; the caller checks hashes.
[[nodiscard]] Result<std::size_t> decode_plane(ConstByteSpan payload, ByteSpan plane, Scratch& scratch);

}  // namespace bitsnap::entropy
