// Numbers shaped like trained weights, the same on every machine, for tests and benchmarks.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <bitsnap/dtype.hpp>

#include "base/bytes.hpp"

namespace bitsnap::codec {

using Floats = std::vector<float>;

// SplitMix64.
class TestRandom {
 public:
  explicit TestRandom(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

  // Slightly uneven, which does not matter to tests.
  std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }

  // The sum of four uniform numbers: approximately normal, mean 0, deviation 1.
  double normal() noexcept {
    const std::uint64_t bits = next();
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += static_cast<double>(bits >> (16 * k) & 0xFFFF);
    return (sum / 65536.0 - 2.0) * 1.7320508;
  }

 private:
  std::uint64_t state_;
};

// The bits of `value` as a float with these exponent and mantissa bits, the mantissa truncated; out of range gives the
// largest finite number or zero.
[[nodiscard]] inline std::uint64_t narrow_float(double value, int exponent_bits, int mantissa_bits) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t sign = bits >> 63 << (exponent_bits + mantissa_bits);
  const std::int64_t bias = (std::int64_t{1} << (exponent_bits - 1)) - 1;
  const std::int64_t exponent = static_cast<std::int64_t>(bits >> 52 & 0x7FF) - 1023 + bias;
  if (exponent <= 0) return sign;
  const std::uint64_t largest =
      (std::uint64_t{1} << (exponent_bits + mantissa_bits)) - 1 - (std::uint64_t{1} << mantissa_bits);
  const std::uint64_t magnitude = static_cast<std::uint64_t>(exponent) << mantissa_bits |
                                  (bits & ((std::uint64_t{1} << 52) - 1)) >> (52 - mantissa_bits);
  return sign | (magnitude < largest ? magnitude : largest);
}

// The bits of `value` as an element of this dtype; integers are in units of 1/64.
[[nodiscard]] inline std::uint64_t element_bits(DType dtype, double value) noexcept {
  switch (dtype) {
    case DType::f8_e4m3: return narrow_float(value, 4, 3);
    case DType::f8_e5m2: return narrow_float(value, 5, 2);
    case DType::f16: return narrow_float(value, 5, 10);
    case DType::bf16: return narrow_float(value, 8, 7);
    case DType::f32: return narrow_float(value, 8, 23);
    case DType::f64: return std::bit_cast<std::uint64_t>(value);
    case DType::c64: return narrow_float(value, 8, 23) << 32 | narrow_float(value / 3, 8, 23);
    default: return static_cast<std::uint64_t>(std::llround(value * 64));
  }
}

// Fills `out` with normal numbers of deviation 0.02 in rows of 512 whose scales vary, like the weights of a matrix.
inline void fill_trained_like(DType dtype, ByteSpan out, std::uint64_t seed) noexcept {
  TestRandom random(seed);
  const std::size_t width = element_size(dtype);
  double scale = 0.02;
  for (std::size_t i = 0; i * width < out.size(); ++i) {
    if (i % 512 == 0) scale = 0.02 * std::exp2(random.normal() / 2);
    const std::uint64_t bits = element_bits(dtype, scale * random.normal());
    std::memcpy(out.data() + i * width, &bits, width);
  }
}

}  // namespace bitsnap::codec
