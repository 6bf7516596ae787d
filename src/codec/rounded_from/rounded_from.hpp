// Shared by both sides of the codec rounded_from: spec.md.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// On disk: never change. Bits of the first byte.
inline constexpr std::uint8_t kRoundedExceptions = 1;  // some elements differ from the prediction
inline constexpr std::uint8_t kRoundedLowHalves = 2;   // the lower halves of F32 elements follow; otherwise they are 0

// Predicts the elements of a chunk from its one input: the F32 rounded, or the F32 that round to BF16 and have these
// lower halves (empty: all 0). `out` has the chunk's size.
void expect_elements(const ChunkContext& context, ConstByteSpan lows, ByteSpan out) noexcept;

}  // namespace bitsnap::codec
