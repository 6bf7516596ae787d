// Reads the forms dense and above_floor of ordinal_delta: spec.md, "Dense" and "Above a floor".
#pragma once

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/moved_elements.hpp"

namespace bitsnap::codec {

// `payload` is complete, with its form byte. The contract of Decoder::decode() holds.
[[nodiscard]] Result<void> decode_dense_deltas(ConstByteSpan payload, const MovedElements& elements, Scratch& scratch);

}  // namespace bitsnap::codec
