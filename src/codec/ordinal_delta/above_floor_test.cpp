// Tests of the form above_floor: the kernels against the definition, the chosen factor, the choice of the form, and
// invalid payloads.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <random>

#include "codec/ordinal_delta/ordinal_delta_testing.hpp"

namespace bitsnap::codec {
namespace {

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

// The floor by its definition: a double holds the product of two floats exactly, so it is rounded once.
std::uint32_t naive_floor(std::uint32_t base, std::uint32_t factor) {
  if (!is_floor_factor(base)) return 0;  // not positive and normal
  const double product =
      static_cast<double>(std::bit_cast<float>(base)) * static_cast<double>(std::bit_cast<float>(factor));
  int exponent = 0;
  const double mantissa = std::floor(std::ldexp(std::frexp(product, &exponent), 24) + 0.5);
  const double rounded = std::ldexp(mantissa, exponent - 24);
  return rounded >= 0x1p-126 && rounded < 0x1p128 ? bits_of(static_cast<float>(rounded)) : 0;
}

// Second moments that decay by `beta` in each of `steps` steps, plus the square of a gradient, which is 0 for one in
// `per_still` elements.
TestChunk decayed_chunk(std::size_t elements, float beta, unsigned steps, unsigned per_still, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto normal = [&] {
    double sum = 0;
    for (int k = 0; k < 6; ++k) sum += static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    return sum;
  };
  TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(elements * 4), .base = {}};
  chunk.base = chunk.data;
  for (std::size_t i = 0; i < elements; ++i) {
    const double size = 1e-4 * std::exp(normal());
    float moment = static_cast<float>(size * size * (0.5 + static_cast<double>(random() % 1000) / 1000));
    set_element(chunk.base, i, 4, bits_of(moment));
    const bool still = random() % per_still == 0;
    for (unsigned step = 0; step < steps; ++step) {
      const double gradient = still ? 0.0 : size * normal();
      moment = beta * moment;
      moment += (1.0F - beta) * static_cast<float>(gradient * gradient);
    }
    set_element(chunk.data, i, 4, bits_of(moment));
  }
  return chunk;
}

TEST_F(OrdinalDelta, ReadsTheExampleAboveAFloorOfItsSpec) {
  const TestChunk chunk{.dtype = DType::f32,
                        .data = elements_of(DType::f32, {0x4036666B}),
                        .base = elements_of(DType::f32, {0x40400000})};
  const std::string text = "02 80 00 00 00 00 00 33 33 73 3F" + values_of_the_example();
  at_every_level([&] {
    const auto decoded = decode_test_chunk(ordinal_delta_decoder(), hex_bytes(text), chunk, scratch_);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, chunk.data);
  });
}

TEST_F(OrdinalDelta, MeasuresAboveFloors) {
  std::mt19937 random(13);
  constexpr std::size_t kElements = 5003;
  std::vector<std::byte> base(kElements * 4);
  std::vector<std::byte> data(kElements * 4);
  const std::uint32_t special[] = {0,          1,          0x007fffff, 0x00800000, 0x00800001, 0x7f7fffff,
                                   0x7f800000, 0x7f800001, 0x7fffffff, 0x80000000, 0xbf800000, 0xff800000,
                                   0x3f800000, 0x3fffffff, 0x3f7fffff, 0x00ffffff, 0x01000000, 0xffffffff};
  for (std::size_t i = 0; i < kElements; ++i) {
    const std::uint32_t from = i < std::size(special) ? special[i] : static_cast<std::uint32_t>(random());
    set_element(base, i, 4, i % 3 == 0 ? from & 0x7fffffff : from);
    set_element(
        data, i, 4,
        i % 2 == 0 ? from - static_cast<std::uint32_t>(random()) % 1000000 : static_cast<std::uint32_t>(random()));
  }
  const auto bytes = [](std::vector<std::byte>& of) { return reinterpret_cast<std::uint8_t*>(of.data()); };
  std::vector<std::uint16_t> values(kElements);
  std::vector<std::byte> low(kElements * 2);
  std::vector<std::byte> again(kElements * 4);
  DeltaGeometry geometry = geometry_of(DType::f32);
  for (const std::uint32_t factor : {bits_of(0.95F), bits_of(0.999F), bits_of(1.0F), bits_of(0.5F), bits_of(1.5F),
                                     0x3fffffffU, 0x3f7fffffU, 0x00800000U, 0x00ffffffU, 0x7f7fffffU, 0x7f000000U}) {
    geometry.factor = factor;
    for (geometry.low_bytes = 0; geometry.low_bytes <= 2; ++geometry.low_bytes) {
      for (const CpuLevel level : kCpuLevels) {
        if (!has_cpu_level(level)) continue;
        SCOPED_TRACE(std::string(cpu_level_name(level)) + ", factor " + std::to_string(factor));
        kernels<OrdinalDeltaKernels>(level).measure_deltas(bytes(data), bytes(base), kElements, geometry, values.data(),
                                                           bytes(low));
        kernels<OrdinalDeltaKernels>(level).move_deltas(bytes(base), values.data(), bytes(low), kElements, geometry,
                                                        bytes(again));
        for (std::size_t i = 0; i < kElements; ++i) {
          const std::uint32_t measure = element_of(data, i, 4) - naive_floor(element_of(base, i, 4), factor);
          ASSERT_EQ(values[i], std::min<std::uint32_t>(measure >> (8 * geometry.low_bytes), kMostDeltas))
              << "base " << element_of(base, i, 4);
          for (std::size_t k = 0; k < geometry.low_bytes; ++k) {
            ASSERT_EQ(std::to_integer<unsigned>(low[i * geometry.low_bytes + k]), measure >> (8 * k) & 255);
          }
          if (values[i] == kMostDeltas) continue;
          ASSERT_EQ(element_of(again, i, 4), element_of(data, i, 4));
        }
      }
    }
  }
}

TEST_F(OrdinalDelta, FindsTheExactDecayOfSecondMoments) {
  for (const float beta : {0.9F, 0.95F, 0.98F, 0.99F, 0.999F, 0.9999F}) {
    for (const unsigned per_still : {50U, 1U << 30}) {
      const TestChunk chunk = decayed_chunk(262144, beta, 1, per_still, 14);
      const auto payload = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
      ASSERT_TRUE(payload);
      ASSERT_EQ((*payload)[0], static_cast<std::byte>(OrdinalDeltaForm::above_floor)) << beta;
      const auto factor = load_le<std::uint32_t>(payload->data() + 7);
      EXPECT_TRUE(factor == bits_of(beta) || per_still > 50) << beta;
      EXPECT_NEAR(static_cast<double>(std::bit_cast<float>(factor)), static_cast<double>(beta), 2e-7) << beta;
      EXPECT_LE(load_le<std::uint32_t>(payload->data() + 3), 262144U / 500) << "elements below their floors";
    }
  }
}

TEST_F(OrdinalDelta, UsesFloorsForDecayedElementsOnly) {
  const auto form_of = [&](const TestChunk& chunk) {
    return static_cast<OrdinalDeltaForm>(expect_round_trip(chunk).at(0));
  };
  for (const std::size_t elements : {1003U, 20000U, 262144U}) {
    EXPECT_EQ(form_of(decayed_chunk(elements, 0.95F, 1, 100, 15)), OrdinalDeltaForm::above_floor);
    EXPECT_EQ(form_of(decayed_chunk(elements, 0.999F, 10, 100, 15)), OrdinalDeltaForm::above_floor);
    TestChunk with_a_sign = decayed_chunk(elements, 0.95F, 1, 100, 15);
    for (std::size_t i = 0; i < elements; i += 7) {
      set_element(with_a_sign.base, i, 4, element_of(with_a_sign.base, i, 4) | 0x80000000);
      set_element(with_a_sign.data, i, 4, element_of(with_a_sign.data, i, 4) | 0x80000000);
    }
    EXPECT_EQ(form_of(with_a_sign), OrdinalDeltaForm::dense);
    for (const double delta : {30.0, 3000.0, 1.0e5}) {
      TestChunk both_ways = moved_chunk(DType::f32, elements, delta, 1, 16);
      for (std::size_t i = 0; i < elements; ++i) {
        set_element(both_ways.base, i, 4, element_of(both_ways.base, i, 4) & 0x7fffffff);
        set_element(both_ways.data, i, 4, element_of(both_ways.data, i, 4) & 0x7fffffff);
      }
      EXPECT_NE(form_of(both_ways), OrdinalDeltaForm::above_floor) << "deltas of " << delta;
    }
  }
}

TEST_F(OrdinalDelta, SavesTheSignAndTheDistanceToTheFloor) {
  const auto size_of = [&](float beta) {
    const TestChunk chunk = decayed_chunk(262144, beta, 1, 100, 17);
    const auto above_floor = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
    // With one negative element in a hundred, the form is dense.
    TestChunk with_a_sign = chunk;
    for (std::size_t i = 0; i < 262144; i += 100) {
      set_element(with_a_sign.base, i, 4, element_of(chunk.base, i, 4) | 0x80000000);
      set_element(with_a_sign.data, i, 4, element_of(chunk.data, i, 4) | 0x80000000);
    }
    const auto dense = encode_test_chunk(ordinal_delta_encoder(), with_a_sign, scratch_);
    EXPECT_TRUE(above_floor && dense);
    return static_cast<double>(above_floor->size()) / static_cast<double>(dense->size());
  };
  EXPECT_LT(size_of(0.95F), 0.97);
  EXPECT_LT(size_of(0.999F), 0.97);
}

TEST_F(OrdinalDelta, StoresElementsBelowTheirFloors) {
  TestChunk chunk = decayed_chunk(262144, 0.95F, 1, 100, 18);
  // In the last elements of the chunk, which the sample misses.
  const std::uint32_t special[] = {0, 1, 0x00800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x80000000, 0xff800001};
  for (std::size_t i = 0; i < std::size(special); ++i) {
    for (std::size_t k = 0; k < std::size(special); ++k) {
      set_element(chunk.data, 262143 - (i * std::size(special) + k), 4, special[i]);
      set_element(chunk.base, 262143 - (i * std::size(special) + k), 4, special[k]);
    }
  }
  const auto payload = expect_round_trip(chunk);
  ASSERT_EQ(payload.at(0), static_cast<std::byte>(OrdinalDeltaForm::above_floor));
  EXPECT_GE(load_le<std::uint32_t>(payload.data() + 3), 10U);
}

TEST_F(OrdinalDelta, RejectsInvalidFieldsAboveAFloor) {
  expect_refused("02 7F 00 00 00 00 00 00 00 80 3F", four_elements(), "form is 2, expected at most 1 for BF16");
  const TestChunk wide{.dtype = DType::f32, .data = std::vector<std::byte>(8), .base = std::vector<std::byte>(8)};
  expect_refused("03", wide, "form is 3, expected at most 2 for F32");
  expect_refused("02 7F 03 00 00 00 00 00 00 80 3F", wide, "expected at most 2 for F32");
  for (const char* const factor : {"00 00 00 00", "FF FF 7F 00", "00 00 80 7F", "01 00 80 7F", "00 00 80 BF"}) {
    expect_refused("02 7F 00 00 00 00 00 " + std::string(factor), wide, "expected a positive normal number");
  }
  expect_refused("02 7F 00 00 00 00 00 00 00 80", wide, "factor", ErrorKind::truncated);
  expect_refused("02 7F 02 00 00 00 00 00 00 80 3F 00 00 00", wide, "low bytes", ErrorKind::truncated);
  expect_refused("02 7F 00 02 00 00 00 00 00 80 3F 00 00 00 00", wide, "far elements", ErrorKind::truncated);
}

}  // namespace
}  // namespace bitsnap::codec
