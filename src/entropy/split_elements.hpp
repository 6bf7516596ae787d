// Floats whose topmost byte is coded in lanes and whose other bytes are stored as they are: docs/spec/rans.md.
//
// The coder's loops also split and join the elements, so a chunk passes through the processor once. The functions
// are pure; any thread may call them, each with its own Scratch. split_elements_encode.hpp is the writing side.
#pragma once

#include <cstddef>

#include "base/bytes.hpp"
#include "base/scratch.hpp"

namespace bitsnap::entropy {

struct SplitShape {
  std::size_t elements = 0;       // at least 1
  std::size_t element_bytes = 0;  // 1, 2 or 4
  // left by one bit before the split, which moves the sign out of the topmost byte; not with 1 byte
  bool rotated = false;
  unsigned beside_bits = 0;  // bits of each element that the owner stores elsewhere; for judging the cost of coding

  [[nodiscard]] std::size_t rest_bytes() const noexcept { return elements * (element_bytes - 1); }
};

// Decodes the whole payload into `out` of elements * element_bytes bytes. The spans must not overlap. Any payload gives
// the elements or an error (`truncated`, `corrupt`), in a time bounded by the output's size. After an error, the
// contents of `out` are unspecified. Damage may decode to wrong elements; the caller checks hashes.
[[nodiscard]] Result<void> decode_split(ConstByteSpan payload, const SplitShape& shape, ByteSpan out, Scratch& scratch);

}  // namespace bitsnap::entropy
