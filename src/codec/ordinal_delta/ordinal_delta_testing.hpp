// Shared by the tests of ordinal_delta: chunks that moved, and coding at every CPU level.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/cpu.hpp>

#include "base/cpu_dispatch.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"

namespace bitsnap::codec {

inline constexpr DType kDeltaDTypes[] = {DType::f8_e4m3, DType::f8_e5m2, DType::f16, DType::bf16, DType::f32};

inline std::uint32_t element_of(const std::vector<std::byte>& bytes, std::size_t i, std::size_t element_bytes) {
  std::uint32_t element = 0;
  std::memcpy(&element, bytes.data() + i * element_bytes, element_bytes);
  return element;
}

inline void set_element(std::vector<std::byte>& bytes, std::size_t i, std::size_t element_bytes,
                        std::uint32_t element) {
  std::memcpy(bytes.data() + i * element_bytes, &element, element_bytes);
}

// Elements with exponents at and below `top`, fewer of each lower exponent, like weights. One in `per_change` moves up
// or down by a random delta of about `delta` (in ULPs of the top exponent).
inline TestChunk moved_chunk(DType dtype, std::size_t elements, double delta, unsigned per_change, unsigned seed) {
  const DeltaGeometry geometry = geometry_of(dtype);
  const std::size_t w = geometry.element_bytes;
  const unsigned top = geometry.exponent_mask / 2;
  std::mt19937_64 random(seed);
  TestChunk chunk{.dtype = dtype, .data = std::vector<std::byte>(elements * w), .base = {}};
  chunk.base = chunk.data;
  for (std::size_t i = 0; i < elements; ++i) {
    unsigned below = 0;
    while (below < std::min(top, 12U) && random() % 2 == 0) ++below;
    const std::uint32_t sign = static_cast<std::uint32_t>(random() % 2) << (8 * w - 1);
    const auto mantissa = static_cast<std::uint32_t>(random() & ((std::uint64_t{1} << geometry.mantissa_bits) - 1));
    const std::uint32_t base = sign | (top - below) << geometry.mantissa_bits | mantissa;
    std::uint32_t element = base;
    if (random() % per_change == 0) {
      // The same distance is a larger delta if the exponent is smaller.
      const double size =
          delta * static_cast<double>(std::uint64_t{1} << below) * static_cast<double>(random() % 1000) / 500;
      const auto moved_by = static_cast<std::uint32_t>(std::min(size, 4294967295.0));
      element = random() % 2 == 0 ? base + moved_by : base - moved_by;
    }
    set_element(chunk.base, i, w, base);
    set_element(chunk.data, i, w, element);
  }
  return chunk;
}

class OrdinalDelta : public CodecTest {
 protected:
  OrdinalDelta() : CodecTest(ordinal_delta_encoder()) {}
};

inline TestChunk four_elements() {
  return {.dtype = DType::bf16,
          .data = elements_of(DType::bf16, {0x3F80, 0x3F81, 0x3F80, 0x3F7D}),
          .base = elements_of(DType::bf16, {0x3F80, 0x3F80, 0x3F80, 0x3F80})};
}

// The last example of rans.md: the value 5 in the context 0.
inline std::string values_of_the_example() {
  std::string text = " 01 02";
  const auto add = [&](std::size_t count, std::string_view byte) {
    for (std::size_t i = 0; i < count; ++i) text += " " + std::string(byte);
  };
  add(31, "00");
  add(2, "80");
  add(14 + 16 + 1, "00");
  add(1, "02");
  add(2 + 8, "00");
  add(1, "01");
  add(63, "00");
  add(1, "80");
  for (const std::size_t zeros : {63U, 64U, 64U, 64U}) {
    add(zeros, "00");
    add(64, "02");
  }
  return text;
}

}  // namespace bitsnap::codec
