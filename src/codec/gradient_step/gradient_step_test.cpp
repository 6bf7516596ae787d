// Tests of gradient_step: finding the constants and the numbers, the forms, and what is not such a step.
#include "codec/gradient_step/gradient_step.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "base/float_mode.hpp"
#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/gradient_step/fused_arithmetic.hpp"
#include "codec/gradient_step/made_gradient_testing.hpp"
#include "codec/optimizer_step/trained_step_testing.hpp"

namespace bitsnap::codec {
namespace {

constexpr GradientForm kAllForms[] = {GradientForm::lerp_fused, GradientForm::lerp, GradientForm::add_fused,
                                      GradientForm::decay_fused, GradientForm::decay_and_add};

class GradientStep : public CodecTest {
 protected:
  GradientStep() : CodecTest(gradient_step_encoder()) {}

  // Of the payload; expects that the codec expresses the chunk.
  GradientConstants constants_of(const TestChunk& chunk) {
    const auto payload = encode_test_chunk(encoder_, chunk, scratch_);
    GradientConstants constants;
    if (payload) std::memcpy(&constants, payload->data() + 3, sizeof constants);
    EXPECT_TRUE(payload);
    return constants;
  }

  bool has_estimate(const TestChunk& chunk) {
    const TestSurroundings surroundings(chunk);
    return encoder_.analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_).value().has_value();
  }
};

TEST_F(GradientStep, FindsTheConstantsToTheLastBit) {
  std::uint64_t seed = 0;
  for (const float beta : {0.9F, 0.95F, 0.8F}) {
    for (const float clip : {1.0F, 1.2345678F, 1.9999F}) {
      SCOPED_TRACE(std::to_string(beta) + " " + std::to_string(clip));
      const auto rate = static_cast<float>(1 - std::round(static_cast<double>(beta) * 1000) / 1000);
      const MadeGradient made{.constants = {beta, rate, clip}};
      const GradientConstants found = constants_of(made_gradient_chunk(40'000, made, ++seed));
      EXPECT_EQ(found.gain, rate);
      EXPECT_EQ(found.scale, clip);
    }
  }
}

TEST_F(GradientStep, StoresOneExponentAndOneByteForAGradientInBf16) {
  for (const GradientForm form : kAllForms) {
    SCOPED_TRACE(static_cast<int>(form));
    const TestChunk chunk = made_gradient_chunk(kChunkElements, {.form = form, .constants = {0.9F, 0.1F, 1.37F}}, 11);
    EXPECT_LT(stored_bits(chunk), 11.3);
    EXPECT_TRUE(has_estimate(chunk));
  }
}

TEST_F(GradientStep, StoresElevenBitsForAGradientInFp16) {
  EXPECT_LT(stored_bits(made_gradient_chunk(kChunkElements, {.constants = {0.9F, 0.1F, 1.61F}, .bits = 11}, 12)), 14.3);
}

TEST_F(GradientStep, StoresFewerBitsForSumsOfGradients) {
  const MadeGradient sums{.constants = {0.9F, 0.1F, 1.1F}, .bits = 8, .varied = 5};
  EXPECT_LT(stored_bits(made_gradient_chunk(kChunkElements, sums, 13)), 15.8);
}

// Every `nth` row of 64 elements comes from another chunk.
TestChunk with_rows_of(TestChunk chunk, const TestChunk& other, std::size_t nth) {
  constexpr std::size_t kRowBytes = 64 * sizeof(float);
  for (std::size_t row = 0; row + kRowBytes <= chunk.data.size(); row += nth * kRowBytes) {
    std::memcpy(chunk.data.data() + row, other.data.data() + row, kRowBytes);
    std::memcpy(chunk.base.data() + row, other.base.data() + row, kRowBytes);
  }
  return chunk;
}

// If the base cancels most of the gradient, few numbers give the element, and all of their bits are needed.
TEST_F(GradientStep, FindsNumbersWhereTheBaseCancelsTheGradient) {
  const MadeGradient sums{.constants = {0.9F, 0.1F, 1.1F}, .varied = 5};
  const MadeGradient long_sums{.constants = {0.9F, 0.1F, 1.1F}, .bits = 24, .base_size = 0.1F};
  const TestChunk chunk = with_rows_of(made_gradient_chunk(kChunkElements, sums, 14),
                                       made_gradient_chunk(kChunkElements, long_sums, 15), 8);
  const auto payload = encode_test_chunk(encoder_, chunk, scratch_);
  ASSERT_TRUE(payload);
  EXPECT_EQ(std::to_integer<unsigned>((*payload)[0]), 0U);  // without exceptions
}

// Most numbers are multiples of three halves of the unit here, which could be taken for the unit.
TEST_F(GradientStep, FindsTheUnitOfSumsWhoseNumbersAreMostlyMultiples) {
  const MadeGradient multiples{.constants = {0.9F, 0.1F, 1.65F}, .varied = 5};
  const MadeGradient units{.constants = {0.9F, 0.1F, 1.1F}, .bits = 9};
  const TestChunk chunk = with_rows_of(made_gradient_chunk(kChunkElements, multiples, 16),
                                       made_gradient_chunk(kChunkElements, units, 17), 3);
  EXPECT_EQ(constants_of(chunk).scale, 1.1F);
}

TEST_F(GradientStep, FindsMomentumAndUpdatesOfParameters) {
  const MadeGradient momentum{.form = GradientForm::add_fused, .constants = {0.9F, 1, 1.7F}};
  EXPECT_LT(stored_bits(made_gradient_chunk(kChunkElements, momentum, 14)), 11.3);
  const MadeGradient update{.form = GradientForm::add_fused, .constants = {0.9998F, -0.00123F, 1}, .base_size = 0.3F};
  EXPECT_LT(stored_bits(made_gradient_chunk(kChunkElements, update, 15)), 11.3);
}

TEST_F(GradientStep, NeedsLittleForElementsWithoutAGradient) {
  EXPECT_LT(stored_bits(made_gradient_chunk(kChunkElements, {.zeros = 0.5F}, 16)), 12);
}

// A training in fp32: its gradients have 24 bits.
TEST_F(GradientStep, EstimatesNothingForOtherChunks) {
  for (std::uint64_t seed = 20; seed < 60; ++seed) {
    EXPECT_FALSE(has_estimate(made_gradient_chunk(20'000, {.bits = 24}, seed)));
  }
  TestChunk unrelated = made_gradient_chunk(20'000, {}, 17);
  unrelated.base = made_gradient_chunk(20'000, {}, 18).base;
  EXPECT_FALSE(has_estimate(unrelated));
}

TEST_F(GradientStep, RestoresSpecialNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0F,
                            -0.0F,
                            kInf,
                            -kInf,
                            std::numeric_limits<float>::quiet_NaN(),
                            std::bit_cast<float>(0xff812345U),
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            -1.0F};
  TestRandom random(19);
  for (const unsigned bits : {8U, 11U, 24U}) {
    TestChunk chunk = made_gradient_chunk(70'000, {.constants = {0.9F, 0.1F, 1.3F}, .bits = bits}, bits);
    for (std::vector<std::byte>* bytes : {&chunk.data, &chunk.base}) {
      for (int i = 0; i < 300; ++i) {
        std::memcpy(bytes->data() + 4 * random.below(70'000), &specials[random.below(std::size(specials))], 4);
      }
    }
    EXPECT_LT(stored_bits(chunk), bits == 24 ? 33 : bits + 5);
  }
}

// Factors near both ends of the range, and betas that people do not choose.
TEST_F(GradientStep, RestoresStepsWithAnyConstants) {
  int expressed = 0;
  std::uint64_t seed = 100;
  for (const GradientForm form : kAllForms) {
    for (const float keep : {0.0F, 0.5F, 0.912345F, 1.0F}) {
      for (const float scale : {1e-30F, 1e-20F, 1.5F, 1e30F, std::numeric_limits<float>::infinity()}) {
        const MadeGradient made{.form = form, .constants = {keep, 1 - keep, scale}};
        if (round_trip(encoder_, made_gradient_chunk(3000, made, ++seed), scratch_)) ++expressed;
      }
    }
  }
  EXPECT_GT(expressed, 60);
}

TEST_F(GradientStep, RestoresAChunkOfWhichOneElementFits) {
  TestChunk chunk = made_gradient_chunk(5000, {.bits = 24}, 21);
  const TestChunk fits = made_gradient_chunk(5000, {}, 22);
  std::copy_n(fits.data.begin(), 4, chunk.data.begin());
  std::copy_n(fits.base.begin(), 4, chunk.base.begin());
  static_cast<void>(round_trip(encoder_, chunk, scratch_));
}

TEST_F(GradientStep, DoesNotDependOnTheFloatMode) {
  TestChunk chunk = made_gradient_chunk(20'000, {.constants = {0.9F, 0.1F, 1.3F}}, 23);
  for (std::vector<std::byte>* bytes : {&chunk.data, &chunk.base}) {
    for (std::size_t i = 0; i < bytes->size(); i += 8) {
      float number = 0;
      std::memcpy(&number, bytes->data() + i, 4);
      number *= 0x1p-120F;
      std::memcpy(bytes->data() + i, &number, 4);
    }
  }
  expect_same_in_every_float_mode(chunk);
}

// At every level, against std::fma: powers of two apart, halfway cases, subnormal results and specials.
TEST_F(GradientStep, AddsWithTheOperationsOfItsSpec) {
  TestRandom random(24);
  Floats base;
  Floats numbers;
  for (int i = 0; i < 30'000; ++i) {
    base.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.next())));
    const auto bits = static_cast<std::uint32_t>(random.next()) & 0xffff0000;
    numbers.push_back(i % 3 == 0 ? base.back() * std::bit_cast<float>((bits & 0x807fffff) | 0x3f800000)
                                 : std::bit_cast<float>(bits));
  }
  const auto bytes_of = [](const Floats& floats) { return std::as_bytes(std::span(floats)); };
  for (const GradientForm form : kAllForms) {
    for (const GradientConstants constants : {GradientConstants{0.9F, 0.1F, 1.3F}, {-1.5F, 0x1p-100F, 0x1p60F}}) {
      at_every_level([&] {
        Floats out(base.size());
        add_gradient(form, constants, bytes_of(base), GradientNumbers::f32, bytes_of(numbers),
                     std::as_writable_bytes(std::span(out)));
        for (std::size_t i = 0; i < base.size(); ++i) {
          const float exact = made_element(form, constants, base[i], numbers[i]);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(out[i]),
                    std::bit_cast<std::uint32_t>(std::isnan(exact) ? base[i] : exact))
              << base[i] << " " << numbers[i];
        }
      });
    }
  }
}

TEST_F(GradientStep, FusesWithDoublesAsStdFmaDoes) {
  TestRandom random(25);
  for (int i = 0; i < 300'000; ++i) {
    const auto a = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
    const auto b = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
    // Near -a * b, or halfway between floats, or anything.
    const float near = -(a * b) * (1 + static_cast<float>(random.below(3)) * 0x1p-23F);
    const float c = i % 2 == 0 ? near : std::ldexp(near, static_cast<int>(random.below(60)) - 30);
    const float exact = std::fma(a, b, c);
    const float found = fused_by_doubles(a, b, c);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(found));
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(exact)) << a << " " << b << " " << c;
    }
  }
}

TEST_F(GradientStep, StoresAlmostNothingForASecondMoment) {
  const MadeGradient made{.constants = {0.9F, 0.1F, 1.37F}};
  for (const float beta : {0.95F, 0.5F}) {
    const TestChunk chunk = made_square_chunk(kChunkElements, made, beta, 26);
    EXPECT_LT(stored_bits(chunk), 0.1) << beta;
    EXPECT_TRUE(has_estimate(chunk)) << beta;
  }
  EXPECT_FALSE(has_estimate(made_square_chunk(20'000, {.bits = 24}, 0.95F, 27)));
}

TEST_F(GradientStep, StoresAlmostNothingForAnAverageOfWeights) {
  for (const GradientForm form : kAllForms) {
    for (const float gain : {0.001F, 0.0001F, 0.1F, 0.0321987F}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(form) << " " << gain);
      const MadeGradient made{.form = form, .constants = {1 - gain, gain, 1}};
      // A rate that is no short decimal, such as one of a warm-up, is known by least squares only.
      const double most = gain == 0.0321987F ? 1 : 0.1;
      EXPECT_LT(stored_bits(made_average_chunk(kChunkElements, made, 0, 30)), most);
      EXPECT_LT(stored_bits(made_average_chunk(kChunkElements, made, 5, 31)), most + 0.2);
      EXPECT_TRUE(has_estimate(made_average_chunk(kChunkElements, made, 0, 32)));
    }
  }
  TestChunk frozen = made_average_chunk(kChunkElements, {.constants = {0.9985F, 0.0015F, 1}}, 0, 35);
  const auto front = static_cast<std::ptrdiff_t>(frozen.data.size() / 2);
  std::copy_n(frozen.base.begin(), front, frozen.data.begin());
  std::copy_n(frozen.base.begin(), front, frozen.more[0].bytes.begin());
  EXPECT_LT(stored_bits(frozen), 0.1);
  TestChunk unrelated = made_average_chunk(kChunkElements, {}, 0, 33);
  unrelated.more[0].bytes = made_average_chunk(kChunkElements, {}, 0, 34).more[0].bytes;
  EXPECT_FALSE(has_estimate(unrelated));
}

TEST_F(GradientStep, DecodesTheAverageOfItsSpec) {
  const TestChunk chunk{.dtype = DType::f32,
                        .data = trained_bytes(Floats{2}),
                        .base = trained_bytes(Floats{1}),
                        .more = {{InputKind::peer, trained_bytes(Floats{3})}}};
  const std::string payload = "06 00    00 00 00 3F 00 00 00 3F";
  const auto decoded = decode_test_chunk(encoder_.decoder(), hex_bytes(payload), chunk, scratch_);
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(*decoded, chunk.data);
  expect_refused("05" + payload.substr(2), chunk, "form is 5, expected 6 for an average");
  expect_refused("06 05" + payload.substr(5), chunk, "operations are 5");
  expect_refused(payload.substr(0, 20), chunk, "", ErrorKind::truncated);
  expect_refused(payload + "00", chunk, "expected 10 bytes, found 11");
}

TEST_F(GradientStep, RestoresSpecialNumbersInSecondMoments) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float specials[] = {0.0F, -0.0F, kInf, std::numeric_limits<float>::quiet_NaN(), 1e-45F, 1e30F};
  TestRandom random(28);
  TestChunk chunk = made_square_chunk(70'000, {.constants = {0.9F, 0.1F, 1.3F}}, 0.95F, 28);
  for (std::vector<std::byte>* bytes : {&chunk.data, &chunk.base, &chunk.more[0].bytes, &chunk.more[1].bytes}) {
    for (int i = 0; i < 300; ++i) {
      std::memcpy(bytes->data() + 4 * random.below(70'000), &specials[random.below(std::size(specials))], 4);
    }
  }
  EXPECT_LT(stored_bits(chunk), 3);
  expect_same_in_every_float_mode(chunk);
}

TEST_F(GradientStep, DecodesTheSecondMomentOfItsSpec) {
  const TestChunk chunk{.dtype = DType::f32,
                        .data = elements_of(DType::f32, {0x40040000}),
                        .base = elements_of(DType::f32, {0x40000000}),
                        .more = {{InputKind::base, elements_of(DType::f32, {0x3f000000})},
                                 {InputKind::peer, elements_of(DType::f32, {0x3f800000})}}};
  const std::string constants = "00 00 40 3F 00 00 80 3E 00 00 00 3F 00 00 80 3F";
  const auto decoded = decode_test_chunk(encoder_.decoder(), hex_bytes("05 02" + constants), chunk, scratch_);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
  expect_refused("00 02" + constants, chunk, "form is 0");
  expect_refused("05 00" + constants, chunk, "0 significant bits");
  expect_refused("05 19" + constants, chunk, "25 significant bits");
  expect_refused("05 02" + constants + "00", chunk, "expected 18 bytes, found 19");
}

class GradientPayload : public GradientStep {
 protected:
  // The example of spec.md.
  const TestChunk chunk_{.dtype = DType::f32,
                         .data = elements_of(DType::f32, {0x40000000, 0x3fc00000}),
                         .base = elements_of(DType::f32, {0x3f800000, 0x40000000})};
  const std::string example_ = "00 00 05  00 00 00 3F 00 00 00 3F 00 00 80 3F  07 00 00 00  00 00 40 80 00 40 3F";

  std::string changed(std::size_t byte, const std::string& hex) const {
    std::string text;
    for (const char c : example_) {
      if (c != ' ') text += c;
    }
    return text.replace(2 * byte, 2, hex);
  }
};

TEST_F(GradientPayload, DecodesTheExampleOfItsSpec) {
  const auto decoded = decode_test_chunk(encoder_.decoder(), hex_bytes(example_), chunk_, scratch_);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk_.data);
}

TEST_F(GradientPayload, RefusesOtherFormsKindsAndCodecs) {
  expect_refused(changed(0, "05"), chunk_, "form is 5");
  expect_refused(changed(0, "85"), chunk_, "form is 5");
  expect_refused(changed(1, "03"), chunk_, "kind of numbers is 3");
  expect_refused(changed(2, "07"), chunk_, "codec of the numbers is 7");
}

TEST_F(GradientPayload, RefusesSizesBeyondThePayload) {
  expect_refused(changed(15, "08"), chunk_, "", ErrorKind::truncated);
  expect_refused(changed(18, "80"), chunk_, "", ErrorKind::truncated);
  expect_refused(changed(15, "06"), chunk_, "", ErrorKind::truncated);
  expect_refused(example_ + "00", chunk_, "expected 26 bytes, found 27");
  expect_refused(changed(0, "80"), chunk_, "ordinal_delta", ErrorKind::truncated);
}

TEST_F(GradientPayload, RefusesSumsWithoutAllTheirHalves) {
  expect_refused(changed(1, "02"), chunk_, "upper halves", ErrorKind::truncated);
  const TestChunk sums = made_gradient_chunk(3000, {.constants = {0.9F, 0.1F, 1.1F}, .varied = 5}, 17);
  const auto payload = encode_test_chunk(encoder_, sums, scratch_);
  ASSERT_TRUE(payload);
  ASSERT_EQ(std::to_integer<unsigned>((*payload)[1]), 2U);
  for (std::size_t size = 0; size < payload->size(); size += 1 + size / 16) {
    const ConstByteSpan part(payload->data(), size);
    EXPECT_FALSE(decode_test_chunk(encoder_.decoder(), part, sums, scratch_)) << size;
  }
}

}  // namespace
}  // namespace bitsnap::codec
