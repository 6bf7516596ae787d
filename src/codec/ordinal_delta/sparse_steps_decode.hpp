// The sparse form of ordinal_delta, reading: spec.md, "Sparse".
#pragma once

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/stepped_elements.hpp"

namespace bitsnap::codec {

// `payload` is whole, its form byte included. As Decoder::decode().
[[nodiscard]] Result<void> decode_sparse_steps(ConstByteSpan payload, const SteppedElements& elements,
                                               Scratch& scratch);

}  // namespace bitsnap::codec
