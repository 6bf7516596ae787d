// What is left of the elements of a sample at least, as a share of their bases: the factor of ordinal_delta's form
// above a floor (spec.md).
#pragma once

#include <cstdint>

#include "codec/ordinal_delta/measure_steps_encode.hpp"

namespace bitsnap::codec {

// The factor, as F32 bits, above whose floors all elements of the sample are, or all but a few. 0 where there is none,
// or an element of the sample or of its base is negative. Precondition: the sample is of F32.
[[nodiscard]] std::uint32_t find_floor_factor(const StepSample& sample) noexcept;

}  // namespace bitsnap::codec
