// Powers that are equal on every machine.
#pragma once

#include <cstdint>

namespace bitsnap::quantize {

// Uses multiplications only; std::pow() may differ between machines. Precondition: a FloatMode is active.
[[nodiscard]] inline double integer_power(double base, std::uint64_t exponent) noexcept {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace bitsnap::quantize
