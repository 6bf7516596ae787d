// Statistics of a few elements of a chunk: their typical size, whether there are signs, and the row length if it is
// unknown.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/factored_split/factored_split.hpp"

namespace bitsnap::codec {

// Scales are estimated from distances in 128ths of an octave, clamped to 12 octaves, so that a zero does not spoil a
// mean.
inline constexpr unsigned kUnitsOfOctave = 7;
static_assert(kMostDistance == 12 << kUnitsOfOctave);

struct FactoredNature {
  FactoredGeometry geometry;
  unsigned octave_bits = 0;  // of a value, below the exponent
  FactoredRange range;
};

[[nodiscard]] FactoredNature find_nature(ConstByteSpan data, const FactoredFloats& floats) noexcept;

// The distance at which elements resemble each other: the row length or a multiple of it, a multiple of 64 up to
// 16,384. 0 if there is none, or if the chunk is too short.
[[nodiscard]] Result<std::size_t> find_row_elements(ConstByteSpan data, const FactoredNature& nature, Scratch& scratch);

}  // namespace bitsnap::codec
