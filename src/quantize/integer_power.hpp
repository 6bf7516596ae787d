// Powers that are the same on every machine.
#pragma once

#include <cstdint>

namespace bitsnap::quantize {

// By multiplications alone; std::pow() may give other bits elsewhere. The thread computes as a FloatMode says.
[[nodiscard]] inline double integer_power(double base, std::uint64_t exponent) noexcept {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace bitsnap::quantize
