// Shared by the tests of quantizers: elements as vectors, CPU levels, and floating-point modes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/cpu_levels_testing.hpp"
#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

// Every exponent, with mantissas at the edges of each number of bits and both signs; then random bits.
[[nodiscard]] std::vector<std::uint32_t> edge_floats(std::size_t random);

// Calls `body` at each CPU level, and again while the thread flushes subnormal numbers to zero and rounds upward.
void at_every_level_and_float_mode(FunctionRef<void()> body);

// The elements after quantize(), which must succeed.
template <typename Bits>
[[nodiscard]] std::vector<Bits> quantized(const Quantizer& quantizer, DType dtype, std::vector<Bits> elements,
                                          ErrorTally& tally) {
  const auto done = quantizer.quantize(dtype, std::as_writable_bytes(std::span(elements)), {}, &tally);
  EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().message());
  return elements;
}

template <typename Bits>
[[nodiscard]] std::vector<Bits> quantized(const Quantizer& quantizer, DType dtype, std::vector<Bits> elements) {
  ErrorTally tally;
  return quantized(quantizer, dtype, std::move(elements), tally);
}

// The number with these bits of F32, BF16 or F16.
[[nodiscard]] double value_of(DType dtype, std::uint32_t bits);

}  // namespace bitsnap::quantize
