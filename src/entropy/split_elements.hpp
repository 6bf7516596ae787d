// Floats whose topmost byte is coded in lanes and whose other bytes stay as they are, reading: docs/spec/rans.md.
//
// The elements are taken apart and put together within the coder's own loops, so that a chunk passes through the
// processor once. Functions here are pure: they own nothing, keep nothing, and may be called from any thread, each with
// a Scratch of its own. The writing side is split_elements_encode.hpp.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/scratch.hpp"

namespace bitsnap::entropy {

struct SplitShape {
  std::size_t elements = 0;       // at least 1
  std::size_t element_bytes = 0;  // 1, 2 or 4
  bool rotated = false;           // left by one bit before they are split: the sign leaves the topmost byte; not of one
  unsigned beside_bits = 0;       // of each element, that its owner keeps elsewhere; for judging what coding costs

  [[nodiscard]] std::size_t rest_bytes() const noexcept { return elements * (element_bytes - 1); }
};

// Decodes the whole payload into `out`, elements * element_bytes bytes; truncated or corrupt where it is not one. The
// two spans must not overlap. Any payload at all gives the elements or an error; nothing outside the spans is read or
// written, and the time is bounded by the output's size. After an error the contents of `out` are unspecified. Damage
// may decode to other elements: hashes are the caller's business.
[[nodiscard]] Result<void> decode_split(ConstByteSpan payload, const SplitShape& shape, ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::entropy
