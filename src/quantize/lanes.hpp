// The number of lanes of sums on every CPU: value i of a part is added to lane i mod 16, in ascending order, then the
// lanes are added in order. So sums have the same bits everywhere.
#pragma once

#include <cstddef>

namespace bitsnap::quantize {

inline constexpr std::size_t kLanes = 16;

}  // namespace bitsnap::quantize
