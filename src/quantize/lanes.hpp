// How many lanes sums are taken in, whatever the CPU: value i of a part is added to lane i mod 16, in ascending order,
// and the lanes are added in theirs. So they have the same bits everywhere.
#pragma once

#include <cstddef>

namespace bitsnap::quantize {

inline constexpr std::size_t kLanes = 16;

}  // namespace bitsnap::quantize
