// A limit that follows from the size of a file, times `DecodeLimits::max_cost`.
#pragma once

#include <algorithm>
#include <cstdint>

#include <bitsnap/limits.hpp>

namespace bitsnap::interop {

[[nodiscard]] inline std::uint64_t scale_limit(std::uint64_t limit, const DecodeLimits& limits) {
  return static_cast<std::uint64_t>(std::min(static_cast<double>(limit) * limits.max_cost, 1e18));
}

}  // namespace bitsnap::interop
