// The exact fused multiply-add of kernels: a * b + c, rounded once, as std::fma defines it. Kernels for processors
// without the instruction compute it with doubles. Everything has internal linkage.
#pragma once

#include <cstdint>

namespace bitsnap::codec {
namespace {

// With doubles, for processors without the instruction. The product of two floats is exact. The sum is rounded to odd
// (if it is not exact, its last bit is 1), so that rounding it again, to a float, gives the float next to the exact
// sum.
inline float fused_by_doubles(float a, float b, float c) noexcept {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const auto added = static_cast<double>(c);
  const double sum = product + added;
  const double other = sum - product;
  const double lost = (product - (sum - other)) + (added - other);
  const auto bits = __builtin_bit_cast(std::int64_t, sum);
  const bool is_inexact = lost > 0 || lost < 0;  // lost is NaN if the sum is infinite or NaN
  const std::int64_t towards = (lost > 0) == (sum > 0) ? 1 : -1;
  const std::int64_t odd = is_inexact && (bits & 1) == 0 ? bits + towards : bits;
  return static_cast<float>(__builtin_bit_cast(double, odd));
}

inline float fused(float a, float b, float c) noexcept {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return fused_by_doubles(a, b, c);
#endif
}

}  // namespace
}  // namespace bitsnap::codec
