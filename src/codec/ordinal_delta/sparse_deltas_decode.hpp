// Reads the sparse form of ordinal_delta: spec.md, "Sparse".
#pragma once

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/moved_elements.hpp"

namespace bitsnap::codec {

// `payload` is complete, with its form byte. The contract of Decoder::decode() holds.
[[nodiscard]] Result<void> decode_sparse_deltas(ConstByteSpan payload, const MovedElements& elements, Scratch& scratch);

}  // namespace bitsnap::codec
