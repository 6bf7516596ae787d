// What the tests of ordinal_delta share: its kernels of every level, chunks that moved, and coding at every level.
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

inline constexpr DType kStepDTypes[] = {DType::f8_e4m3, DType::f8_e5m2, DType::f16, DType::bf16, DType::f32};

inline std::uint32_t element_of(const std::vector<std::byte>& bytes, std::size_t i, std::size_t element_bytes) {
  std::uint32_t element = 0;
  std::memcpy(&element, bytes.data() + i * element_bytes, element_bytes);
  return element;
}

inline void set_element(std::vector<std::byte>& bytes, std::size_t i, std::size_t element_bytes,
                        std::uint32_t element) {
  std::memcpy(bytes.data() + i * element_bytes, &element, element_bytes);
}

// Elements of a few exponents below `top`, fewer of each, as those of weights are; all that a step of size `step` (in
// units of the top exponent's last place) moves, up or down, but for one in `per_change` of them only.
inline TestChunk moved_chunk(DType dtype, std::size_t elements, double step, unsigned per_change, unsigned seed) {
  const StepGeometry geometry = geometry_of(dtype);
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
      // The same distance is more steps where the exponent is smaller.
      const double size =
          step * static_cast<double>(std::uint64_t{1} << below) * static_cast<double>(random() % 1000) / 500;
      const auto steps = static_cast<std::uint32_t>(std::min(size, 4294967295.0));
      element = random() % 2 == 0 ? base + steps : base - steps;
    }
    set_element(chunk.base, i, w, base);
    set_element(chunk.data, i, w, element);
  }
  return chunk;
}

class OrdinalDelta : public testing::Test {
 protected:
  ~OrdinalDelta() override { force_cpu_level(detected_cpu_level()); }

  // The payload, which every level writes and every level reads.
  std::vector<std::byte> expect_round_trip(const TestChunk& chunk) {
    std::optional<std::vector<std::byte>> first;
    for (const CpuLevel level : kCpuLevels) {
      if (!force_cpu_level(level)) continue;
      const auto payload = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
      if (!first) first = payload;
      EXPECT_EQ(payload, first) << cpu_level_name(level);
    }
    EXPECT_TRUE(first.has_value());
    if (!first) return {};
    for (const CpuLevel level : kCpuLevels) {
      if (!force_cpu_level(level)) continue;
      const auto decoded = decode_test_chunk(ordinal_delta_decoder(), *first, chunk, scratch_);
      EXPECT_TRUE(decoded && *decoded == chunk.data) << cpu_level_name(level);
    }
    return *first;
  }

  // At every level, as kernels find gaps that lead too far.
  void expect_refused(std::string_view payload, const TestChunk& chunk, std::string_view words,
                      ErrorKind kind = ErrorKind::corrupt) {
    for (const CpuLevel level : kCpuLevels) {
      if (!force_cpu_level(level)) continue;
      const auto decoded = decode_test_chunk(ordinal_delta_decoder(), hex_bytes(payload), chunk, scratch_);
      ASSERT_FALSE(decoded) << payload << ", " << cpu_level_name(level);
      const std::string message = decoded.error().message();
      EXPECT_EQ(decoded.error().kind(), kind) << payload << ", " << cpu_level_name(level) << ": " << message;
      EXPECT_NE(message.find(words), std::string::npos) << payload << ", " << cpu_level_name(level) << ": " << message;
    }
  }

  Scratch scratch_;
};

inline TestChunk four_elements() {
  return {.dtype = DType::bf16,
          .data = elements_of(DType::bf16, {0x3F80, 0x3F81, 0x3F80, 0x3F7D}),
          .base = elements_of(DType::bf16, {0x3F80, 0x3F80, 0x3F80, 0x3F80})};
}

// The last example of rans.md: one value, 5, of the context 0.
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
