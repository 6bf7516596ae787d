// What tests of quantizers share: elements as vectors, every CPU level, and threads that flush subnormal numbers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "quantize/quantizer.hpp"

namespace bitsnap::quantize {

// Every exponent with mantissas at the edges of each number of bits, of both signs; then random bits.
[[nodiscard]] std::vector<std::uint32_t> edge_floats(std::size_t random);

// Runs at each level that the machine has, and again where the thread flushes subnormal numbers and rounds upward.
void at_every_level(const std::function<void()>& body);

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

// The number that bits of F32, BF16 or F16 stand for.
[[nodiscard]] double value_of(DType dtype, std::uint32_t bits);

}  // namespace bitsnap::quantize
