// Tests of rounded_from: the rounding, and the sizes.
#include "codec/rounded_from/rounded_from.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <bitsnap/tensor.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

std::vector<std::byte> bytes_of(const auto& elements) {
  const ConstByteSpan bytes = std::as_bytes(std::span(elements));
  return {bytes.begin(), bytes.end()};
}

template <typename To>
std::vector<To> elements_in(ConstByteSpan bytes) {
  std::vector<To> elements(bytes.size() / sizeof(To));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

class RoundedFrom : public testing::Test {
 protected:
  static std::vector<std::uint16_t> rounded(const std::vector<float>& masters, DType dtype) {
    const std::vector<std::byte> from = bytes_of(masters);
    const Input peer{.kind = InputKind::peer, .dtype = DType::f32, .bytes = from};
    std::vector<std::byte> weights(2 * masters.size());
    expect_elements({dtype, masters.size(), {&peer, 1}, {}}, {}, weights);
    return elements_in<std::uint16_t>(weights);
  }

  Scratch scratch_;
};

float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// By the definition of the format.
float value_of_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 0x3ff;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// At every boundary: half way between two neighbours, and the floats next to it.
TEST_F(RoundedFrom, RoundsToF16AtEveryBoundary) {
  std::vector<float> masters;
  std::vector<std::uint16_t> expected;
  const auto add = [&](float master, unsigned weight) {
    for (const unsigned sign : {0U, 0x8000U}) {
      masters.push_back(sign != 0 ? -master : master);
      expected.push_back(static_cast<std::uint16_t>(weight | sign));
    }
  };
  constexpr float kBeyond = std::numeric_limits<float>::infinity();
  for (unsigned weight = 0; weight < 0x7c00; ++weight) {
    const float own = value_of_f16(static_cast<std::uint16_t>(weight));
    const float next = weight == 0x7bff ? 65536.0F : value_of_f16(static_cast<std::uint16_t>(weight + 1));
    const float half_way = (own + next) / 2;
    add(own, weight);
    add(std::nextafter(half_way, 0.0F), weight);
    add(half_way, weight + weight % 2);
    add(std::nextafter(half_way, kBeyond), weight + 1);
  }
  add(std::numeric_limits<float>::denorm_min(), 0);
  add(std::numeric_limits<float>::min(), 0);
  add(std::numeric_limits<float>::max(), 0x7c00);
  add(kBeyond, 0x7c00);
  masters.push_back(float_of(0x7f800001));
  expected.push_back(0x7e00);
  masters.push_back(float_of(0xffffffff));
  expected.push_back(0xfe00);
  at_every_level([&] { EXPECT_EQ(rounded(masters, DType::f16), expected); });
}

TEST_F(RoundedFrom, RoundsToBf16AtEveryBoundary) {
  std::vector<float> masters;
  std::vector<std::uint16_t> expected;
  for (unsigned weight = 0; weight < 0x7f80; ++weight) {
    for (const unsigned sign : {0U, 0x8000U}) {
      const std::uint32_t own = (weight | sign) << 16;
      const auto add = [&](std::uint32_t low, unsigned result) {
        masters.push_back(float_of(own | low));
        expected.push_back(static_cast<std::uint16_t>(result | sign));
      };
      add(0, weight);
      add(0x7fff, weight);
      add(0x8000, weight + weight % 2);
      add(0x8001, weight + 1);
      add(0xffff, weight + 1);
    }
  }
  at_every_level([&] { EXPECT_EQ(rounded(masters, DType::bf16), expected); });
}

TEST_F(RoundedFrom, StoresAWeightThatIsItsRoundedMasterInOneByte) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    TestChunk chunk{.dtype = dtype,
                    .data = make_chunk(Pattern::trained_like, dtype, kChunkElements, 1),
                    .base = {},
                    .kind = InputKind::peer,
                    .base_dtype = DType::f32};
    chunk.base = make_peer(dtype, chunk.data, DType::f32, 1);
    EXPECT_EQ(encode_test_chunk(rounded_from_encoder(), chunk, scratch_), hex_bytes("00"));
  }
}

// Like stochastic rounding: about half of the elements are the neighbour on the other side.
TEST_F(RoundedFrom, StoresStochasticallyRoundedWeightsInLessThanTwoBitsEach) {
  TestChunk chunk{.dtype = DType::bf16,
                  .data = make_chunk(Pattern::trained_like, DType::bf16, kChunkElements, 1),
                  .base = {},
                  .kind = InputKind::peer,
                  .base_dtype = DType::f32};
  chunk.base = make_peer(DType::bf16, chunk.data, DType::f32, 1);
  auto weights = elements_in<std::uint16_t>(chunk.data);
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<std::uint16_t>(weights[i] + (i * i / 7) % 2);
  chunk.data = bytes_of(weights);
  const auto payload = encode_test_chunk(rounded_from_encoder(), chunk, scratch_);
  ASSERT_TRUE(payload);
  EXPECT_LT(payload->size(), weights.size() / 5);
}

TEST_F(RoundedFrom, StoresTheBitsOfAMasterThatItsWeightLacks) {
  for (const Pattern pattern : {Pattern::trained_like, Pattern::low_half_zero}) {
    TestChunk chunk{.dtype = DType::f32,
                    .data = make_chunk(pattern, DType::f32, kChunkElements, 1),
                    .base = {},
                    .kind = InputKind::peer,
                    .base_dtype = DType::bf16};
    chunk.base = make_peer(DType::f32, chunk.data, DType::bf16, 1);
    const auto payload = encode_test_chunk(rounded_from_encoder(), chunk, scratch_);
    ASSERT_TRUE(payload);
    // Half way between two weights, some masters were rounded up and some down.
    EXPECT_LT(payload->size(), (pattern == Pattern::low_half_zero ? 0 : 2 * kChunkElements) + 400);
  }
}

// All four kinds of lower halves, with an even and an odd weight.
TEST_F(RoundedFrom, FindsTheMasterOnEitherSideOfItsWeight) {
  const std::vector<std::uint32_t> masters = {0x3f800000, 0x3f800001, 0x3f807fff, 0x3f808000, 0x3f7f8001, 0x3f7fffff,
                                              0x3f810000, 0x3f817fff, 0xbf808001, 0xbf80ffff, 0x80008001, 0x00000001};
  TestChunk chunk{
      .dtype = DType::f32, .data = bytes_of(masters), .base = {}, .kind = InputKind::peer, .base_dtype = DType::bf16};
  chunk.base = make_peer(DType::f32, chunk.data, DType::bf16, 1);
  at_every_level([&] {
    const auto payload = encode_test_chunk(rounded_from_encoder(), chunk, scratch_);
    ASSERT_TRUE(payload);
    EXPECT_EQ(payload->size(), 1 + 2 * masters.size());
    const auto decoded = decode_test_chunk(rounded_from_decoder(), *payload, chunk, scratch_);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(elements_in<std::uint32_t>(*decoded), masters);
  });
}

TEST_F(RoundedFrom, ReadsTheExamplesOfItsSpec) {
  const std::vector<std::uint32_t> masters = {0x3f800001, 0x3f808001};
  const std::vector<std::uint16_t> weights = {0x3f80, 0x3f81};
  const TestChunk weight{.dtype = DType::bf16,
                         .data = bytes_of(weights),
                         .base = bytes_of(masters),
                         .kind = InputKind::peer,
                         .base_dtype = DType::f32};
  EXPECT_EQ(encode_test_chunk(rounded_from_encoder(), weight, scratch_), hex_bytes("00"));
  const TestChunk master{.dtype = DType::f32,
                         .data = bytes_of(masters),
                         .base = bytes_of(weights),
                         .kind = InputKind::peer,
                         .base_dtype = DType::bf16};
  EXPECT_EQ(encode_test_chunk(rounded_from_encoder(), master, scratch_), hex_bytes("02 01 00 01 80"));
}

TEST_F(RoundedFrom, RejectsFormsThatTheDtypeDoesNotHave) {
  const auto message_of = [&](DType dtype, DType peer, std::string_view payload) {
    const TestChunk chunk{.dtype = dtype,
                          .data = std::vector<std::byte>(2 * element_size(dtype)),
                          .base = std::vector<std::byte>(2 * element_size(peer)),
                          .kind = InputKind::peer,
                          .base_dtype = peer};
    const auto decoded = decode_test_chunk(rounded_from_decoder(), hex_bytes(payload), chunk, scratch_);
    return decoded ? std::string() : decoded.error().message();
  };
  using testing::HasSubstr;
  EXPECT_THAT(message_of(DType::bf16, DType::f32, "02 00 00"), HasSubstr("form is 2, expected at most 1 for BF16"));
  EXPECT_THAT(message_of(DType::f32, DType::bf16, "04"), HasSubstr("form is 4, expected at most 3 for F32"));
  EXPECT_THAT(message_of(DType::f32, DType::bf16, "02 00 00 00"), HasSubstr("lower halves"));
  EXPECT_THAT(message_of(DType::f16, DType::f32, "00 00"), HasSubstr("expected 1 bytes, found 2"));
  EXPECT_EQ(message_of(DType::f16, DType::f32, "00"), "");
}

TEST_F(RoundedFrom, AcceptsOnePeerOfTheOtherWidthOnly) {
  const auto takes = [](DType dtype, InputKind kind, DType input) {
    const Input one{.kind = kind, .dtype = input, .bytes = {}};
    return rounded_from_decoder().accepts(dtype, {&one, 1});
  };
  EXPECT_TRUE(takes(DType::bf16, InputKind::peer, DType::f32));
  EXPECT_TRUE(takes(DType::f16, InputKind::peer, DType::f32));
  EXPECT_TRUE(takes(DType::f32, InputKind::peer, DType::bf16));
  EXPECT_FALSE(takes(DType::f32, InputKind::peer, DType::f16)) << "F16 lacks more of an F32 than its lower half";
  EXPECT_FALSE(takes(DType::bf16, InputKind::base, DType::f32));
  EXPECT_FALSE(takes(DType::bf16, InputKind::peer, DType::bf16));
  EXPECT_FALSE(rounded_from_decoder().accepts(DType::bf16, {}));
}

}  // namespace
}  // namespace bitsnap::codec
