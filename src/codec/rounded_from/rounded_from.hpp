// What both sides of rounded_from agree on: spec.md.
#pragma once

#include <cstdint>

#include "base/bytes.hpp"
#include "codec/decoder.hpp"

namespace bitsnap::codec {

// On disk: never change. Bits of the first byte.
inline constexpr std::uint8_t kRoundedExceptions = 1;  // elements that are not what was expected of them
inline constexpr std::uint8_t kRoundedLowHalves = 2;   // of an F32 the lower halves, which are all 0 without

// What the elements of a chunk are expected to be, from its one input: the roundings of F32, or the F32 that round to
// BF16 and have these lower halves (empty: all 0). `out` has the chunk's size.
void expect_elements(const ChunkContext& context, ConstByteSpan lows, ByteSpan out) noexcept;

}  // namespace bitsnap::codec
