// The block coder over byte planes, decoding side: docs/spec/entropy.md.
//
// A plane is cut into blocks of kBlockBytes (the last one may be shorter), and each block stands in the payload as raw
// bytes, as one repeated byte, Huffman coded, or as a mask and what it marks. Functions here are pure: they own
// nothing, keep nothing, and may be called from any thread, each with a Scratch of its own. The encoding side is
// byte_block_encode.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/scratch.hpp"

namespace bitsnap::entropy {

// Bytes of a plane that one block covers. On disk: never change.
inline constexpr std::size_t kBlockBytes = 65536;

// How deep masks of sparse blocks may be sparse themselves: a block and its mask. On disk: never change.
inline constexpr std::size_t kMaxSparseLevels = 2;

// The first byte of a block. On disk: never change or reuse.
enum class BlockMode : std::uint8_t {
  raw = 0,      // the bytes as they are
  fill = 1,     // one byte, repeated
  huffman = 2,  // canonical Huffman code in interleaved streams
  sparse = 3,   // one byte almost everywhere: a mask of the other places, and the bytes there
};

// Decodes exactly plane.size() bytes from the front of `payload` and returns how many of its bytes that took; whoever
// calls holds that against what should have been there. The two spans must not overlap.
//
// Any payload at all gives either a full plane or an error (`truncated`, `corrupt`) that names the block and the offset
// in the payload; nothing outside the spans is read or written, and the time is bounded by the plane's size. After an
// error the contents of `plane` are unspecified. Damage that leaves the structure sound decodes to other bytes: hashes
// are the caller's business.
[[nodiscard]] Result<std::size_t> decode_plane(ConstByteSpan payload, ByteSpan plane, Scratch& scratch);

}  // namespace bitsnap::entropy
