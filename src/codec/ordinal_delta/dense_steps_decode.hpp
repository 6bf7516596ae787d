// The dense form of ordinal_delta and that above a floor, reading: spec.md, "Dense" and "Above a floor".
#pragma once

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/ordinal_delta/stepped_elements.hpp"

namespace bitsnap::codec {

// `payload` is whole, its form byte included. As Decoder::decode().
[[nodiscard]] Result<void> decode_dense_steps(ConstByteSpan payload, const SteppedElements& elements, Scratch& scratch);

}  // namespace bitsnap::codec
