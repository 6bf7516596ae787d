// The dense form of ordinal_delta and that above a floor, reading: spec.md, "Dense" and "Above a floor".
#pragma once

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// `payload` is whole, its form byte included. As Decoder::decode().
[[nodiscard]] Result<void> decode_dense_steps(ConstByteSpan payload, const ChunkContext& context, ByteSpan out,
                                              Scratch& scratch);

}  // namespace bitsnap::codec
