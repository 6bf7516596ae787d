#include "quantize/quantize_testing.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include <bitsnap/cpu.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bitsnap::quantize {

std::vector<std::uint32_t> edge_floats(std::size_t random) {
  std::vector<std::uint32_t> floats;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (std::uint32_t bit = 0; bit <= 23; ++bit) {
      for (const std::uint32_t around : {1U << bit, 3U << bit, 0x7fffffU << bit, 0x555555U >> bit}) {
        for (const std::uint32_t mantissa : {around - 1, around, around + 1}) {
          const std::uint32_t bits = exponent << 23 | (mantissa & 0x7fffff);
          floats.push_back(bits);
          floats.push_back(bits | 0x80000000);
        }
      }
    }
  }
  std::mt19937 bits(5);
  for (std::size_t i = 0; i < random; ++i) floats.push_back(static_cast<std::uint32_t>(bits()));
  return floats;
}

void at_every_level_and_float_mode(FunctionRef<void()> body) {
  at_every_level([&] {
    body();
#if defined(__x86_64__)
    SCOPED_TRACE("flushing subnormal numbers, rounding upward");
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0xdfc0);
    body();
    EXPECT_EQ(_mm_getcsr() & 0xffc0, 0xdfc0U) << "the quantizer did not restore the mode";
    _mm_setcsr(before);
#endif
  });
}

double value_of(DType dtype, std::uint32_t bits) {
  if (dtype == DType::f32) return static_cast<double>(std::bit_cast<float>(bits));
  if (dtype == DType::bf16) return static_cast<double>(std::bit_cast<float>(bits << 16));
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const auto mantissa = static_cast<double>(bits & 0x3ff);
  double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace bitsnap::quantize
