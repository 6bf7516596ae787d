// Finds the factor of ordinal_delta's form above_floor (spec.md): the smallest ratio of elements to their bases in a
// sample.
#pragma once

#include <cstdint>

#include "codec/ordinal_delta/measure_deltas_encode.hpp"

namespace bitsnap::codec {

// The F32 bits of the factor above whose floors all sampled elements are, or all but a few. 0 if there is none, or if
// an element or base is negative. Precondition: the sample is of F32.
[[nodiscard]] std::uint32_t find_floor_factor(const DeltaSample& sample) noexcept;

}  // namespace bitsnap::codec
