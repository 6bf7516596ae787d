// What a few elements tell of a chunk before all of it is looked at: how large most are, whether there are signs, and
// how long rows are where nobody says so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.hpp"
#include "base/scratch.hpp"
#include "codec/factored_split/factored_split.hpp"

namespace bitsnap::codec {

// Scales are estimated from distances in 128ths of an octave, held within 12 octaves: an element that is 0 would spoil
// a mean.
inline constexpr unsigned kUnitsOfOctave = 7;
static_assert(kMostDistance == 12 << kUnitsOfOctave);

struct FactoredNature {
  FactoredGeometry geometry;
  unsigned octave_bits = 0;  // of a value, below the exponent
  FactoredRange range;
};

[[nodiscard]] FactoredNature find_nature(ConstByteSpan data, const FactoredFloats& floats) noexcept;

// The distance after which elements are like those before: a row's length, or several rows', in multiples of 64 up to
// 16,384. 0 where there is none, or where the chunk is too short to tell.
[[nodiscard]] Result<std::size_t> find_row_elements(ConstByteSpan data, const FactoredNature& nature, Scratch& scratch);

}  // namespace bitsnap::codec
