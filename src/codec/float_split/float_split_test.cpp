// Tests of float_split: the worked examples of spec.md, the forms, and sizes near the entropy of the exponents.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include <bitsnap/cpu.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/float_split/float_split.hpp"
#include "codec/seven_bits.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

// The bits of an ideal payload: the order-0 entropy of the exponents, and all other bits.
double ideal_bits(DType dtype, const std::vector<std::byte>& data, int exponent_bits) {
  const std::size_t width = element_size(dtype);
  const int total_bits = static_cast<int>(width) * 8;
  std::vector<double> counts(std::size_t{1} << exponent_bits);
  const double elements = static_cast<double>(data.size() / width);
  for (std::size_t i = 0; i < data.size(); i += width) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, data.data() + i, width);
    counts[bits >> (total_bits - 1 - exponent_bits) & (counts.size() - 1)] += 1;
  }
  double bits = elements * (total_bits - exponent_bits);
  for (const double count : counts) {
    if (count > 0) bits += count * std::log2(elements / count);
  }
  return bits;
}

TEST(FloatSplit, WritesTheRotatedExampleOfItsSpec) {
  Scratch scratch;
  const TestChunk chunk{
      .dtype = DType::bf16, .data = elements_of(DType::bf16, {0x3F80, 0xBF80, 0x3FC0, 0x3FA0, 0x3F90}), .base = {}};
  const auto payload = hex_bytes("01    00 00 01 80 40 20    01 7F");
  EXPECT_EQ(encode_test_chunk(float_split_encoder(), chunk, scratch), payload);
  const auto decoded = decode_test_chunk(float_split_decoder(), payload, chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(FloatSplit, WritesTheUnsignedExampleOfItsSpec) {
  Scratch scratch;
  const TestChunk chunk{
      .dtype = DType::bf16,
      .data = elements_of(DType::bf16, {0x3F81, 0x3F82, 0x3F83, 0x3F84, 0x3F85, 0x3F86, 0x3F87, 0x3F88}),
      .base = {}};
  const auto payload = hex_bytes("02    00 01 C1 80 50 30 1C 10    01 7F");
  EXPECT_EQ(encode_test_chunk(float_split_encoder(), chunk, scratch), payload);
  const auto decoded = decode_test_chunk(float_split_decoder(), payload, chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(FloatSplit, TakesAboutTheEntropyOfTheExponents) {
  struct Case {
    DType dtype;
    int exponent_bits;
    double most;
  };
  // Sums several chunks, because a table comes from 2,048 elements of its block, whose sample varies. Over a hundred
  // seeds the mean is 1.0077 for BF16.
  for (const auto& [dtype, exponent_bits, most] :
       {Case{DType::bf16, 8, 1.008}, Case{DType::f16, 5, 1.015}, Case{DType::f32, 8, 1.008}}) {
    for (const std::size_t elements : {65536U, 262144U}) {
      double bits = 0;
      double ideal = 0;
      for (unsigned seed = 0; seed < 8; ++seed) {
        TestChunk chunk{.dtype = dtype, .data = std::vector<std::byte>(elements * element_size(dtype)), .base = {}};
        fill_trained_like(dtype, chunk.data, elements + seed);
        Scratch scratch;
        const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
        ASSERT_TRUE(payload);
        bits += static_cast<double>(payload->size()) * 8;
        ideal += ideal_bits(dtype, chunk.data, exponent_bits);
      }
      EXPECT_LE(bits, ideal * most) << dtype_name(dtype) << ", " << elements << " elements";
    }
  }
}

TEST(FloatSplit, EstimatesWholeChunksFromTheSamplesOfTheLanes) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Pattern pattern : {Pattern::trained_like, Pattern::non_negative}) {
      TestChunk chunk{.dtype = dtype, .data = make_chunk(pattern, dtype, 262144, 3), .base = {}};
      const auto expect_near = [&](std::string_view what) {
        const TestSurroundings surroundings(chunk);
        Scratch scratch;
        const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
        const auto estimate = float_split_encoder().analyze(chunk.data, surroundings.context(), 262144, scratch);
        ASSERT_TRUE(payload && estimate && *estimate) << what;
        const auto size = static_cast<double>(payload->size());
        EXPECT_NEAR(static_cast<double>((*estimate)->payload_bytes), size, size / 100) << what << dtype_name(dtype);
      };
      ASSERT_TRUE(float_split_encoder().analyzes_whole_chunks(dtype));
      expect_near("lanes of ");
      // With mantissas that are not random, it uses planes.
      for (std::size_t i = 0; i < chunk.data.size(); i += element_size(dtype)) chunk.data[i] &= std::byte{0x0F};
      expect_near("planes of ");
    }
  }
  EXPECT_FALSE(float_split_encoder().analyzes_whole_chunks(DType::f16));
}

std::byte form_of(FloatSplitForm form) { return static_cast<std::byte>(form); }

TEST(FloatSplit, SavesTheSignIfNoneIsSet) {
  Scratch scratch;
  constexpr std::size_t kElements = 70000;
  struct Case {
    DType dtype;
    FloatSplitForm without_sign;
    std::size_t saved_bytes;
  };
  // Lanes of an F32 without signs lose a part of the saved bit; for a BF16 that would matter.
  for (const auto& [dtype, without_sign, saved_bytes] :
       {Case{DType::bf16, FloatSplitForm::planes_unsigned, kElements / 8 - 400},
        Case{DType::f32, FloatSplitForm::lanes, kElements / 10}}) {
    const TestChunk with_sign{
        .dtype = dtype, .data = make_chunk(Pattern::trained_like, dtype, kElements, 1), .base = {}};
    TestChunk without{.dtype = dtype, .data = make_chunk(Pattern::non_negative, dtype, kElements, 1), .base = {}};
    const auto longer = encode_test_chunk(float_split_encoder(), with_sign, scratch);
    const auto shorter = encode_test_chunk(float_split_encoder(), without, scratch);
    ASSERT_TRUE(longer && shorter);
    EXPECT_EQ((*longer)[0], form_of(FloatSplitForm::lanes_rotated)) << dtype_name(dtype);
    EXPECT_EQ((*shorter)[0], form_of(without_sign)) << dtype_name(dtype);
    EXPECT_LE(shorter->size() + saved_bytes, longer->size());
    without.data.back() |= std::byte{0x80};
    const auto last_negative = encode_test_chunk(float_split_encoder(), without, scratch);
    ASSERT_TRUE(last_negative);
    EXPECT_EQ((*last_negative)[0], form_of(FloatSplitForm::planes_rotated)) << "one sign anywhere, which planes code";
  }
}

TEST(FloatSplit, UsesPlanesForShortChunksAndOtherDtypes) {
  Scratch scratch;
  struct Case {
    DType dtype;
    std::size_t elements;
    FloatSplitForm form;
  };
  for (const auto& [dtype, elements, form] :
       {Case{DType::bf16, 65535, FloatSplitForm::planes_rotated},
        Case{DType::bf16, 65536, FloatSplitForm::lanes_rotated},
        Case{DType::f32, 32767, FloatSplitForm::planes_rotated}, Case{DType::f32, 32768, FloatSplitForm::lanes_rotated},
        Case{DType::f16, 262144, FloatSplitForm::planes_rotated},
        Case{DType::f64, 262144, FloatSplitForm::planes_rotated},
        Case{DType::f8_e4m3, 262144, FloatSplitForm::planes}}) {
    const TestChunk chunk{.dtype = dtype, .data = make_chunk(Pattern::trained_like, dtype, elements, 1), .base = {}};
    const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
    ASSERT_TRUE(payload);
    EXPECT_EQ((*payload)[0], form_of(form)) << dtype_name(dtype) << ", " << elements << " elements";
  }
}

TEST(FloatSplit, RejectsFormsThatTheDtypeDoesNotHave) {
  Scratch scratch;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const TestChunk chunk{.dtype = dtype, .data = make_chunk(Pattern::trained_like, dtype, 70000, 1), .base = {}};
    auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
    ASSERT_TRUE(payload);
    const std::uint8_t first_bad = dtype == DType::f64 ? 3 : 5;
    for (const unsigned form : {unsigned{first_bad}, 127U}) {
      (*payload)[0] = static_cast<std::byte>(form);
      const auto decoded = decode_test_chunk(float_split_decoder(), *payload, chunk, scratch);
      ASSERT_FALSE(decoded);
      EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
      EXPECT_NE(decoded.error().message().find("form is " + std::to_string(form)), std::string::npos);
    }
  }
}

TEST(FloatSplit, DoesNotRotateIfPackingWouldHideAPattern) {
  Scratch scratch;
  TestChunk positive{.dtype = DType::bf16, .data = {}, .base = {}};
  TestRandom random(1);
  for (std::size_t i = 0; i < 5000; ++i) {
    const auto element = elements_of(DType::bf16, {0x3F80 + 5 * random.below(6)});
    positive.data.insert(positive.data.end(), element.begin(), element.end());
  }
  const auto payload = encode_test_chunk(float_split_encoder(), positive, scratch);
  ASSERT_TRUE(payload);
  EXPECT_EQ((*payload)[0], std::byte{0});
  EXPECT_LT(payload->size(), 5000 * 3 / 8 + 200U) << "six values: under three bits each";
}

TEST(FloatSplit, DoesNotRotateElementsOfOneByte) {
  Scratch scratch;
  for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    for (const Pattern pattern : {Pattern::trained_like, Pattern::non_negative}) {
      const TestChunk chunk{.dtype = dtype, .data = make_chunk(pattern, dtype, 70000, 1), .base = {}};
      const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
      ASSERT_TRUE(payload);
      EXPECT_EQ((*payload)[0], std::byte{0});
      for (const unsigned place : {1U, 2U, 3U, 255U}) {
        auto damaged = *payload;
        damaged[0] = static_cast<std::byte>(place);
        const auto decoded = decode_test_chunk(float_split_decoder(), damaged, chunk, scratch);
        ASSERT_FALSE(decoded);
        EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
      }
    }
  }
}

TEST(FloatSplit, StoresAlmostNothingForTheZeroHalfOfAnF32) {
  Scratch scratch;
  const TestChunk wide{
      .dtype = DType::f32, .data = make_chunk(Pattern::low_half_zero, DType::f32, 65536, 1), .base = {}};
  TestChunk narrow{.dtype = DType::bf16, .data = {}, .base = {}};
  for (std::size_t i = 0; i < wide.data.size(); i += 4) {
    narrow.data.push_back(wide.data[i + 2]);
    narrow.data.push_back(wide.data[i + 3]);
  }
  const auto wide_payload = encode_test_chunk(float_split_encoder(), wide, scratch);
  const auto narrow_payload = encode_test_chunk(float_split_encoder(), narrow, scratch);
  ASSERT_TRUE(wide_payload && narrow_payload);
  EXPECT_LE(wide_payload->size(), narrow_payload->size() + narrow_payload->size() / 100);
}

// Trained-like elements with zero_bits low bits set to 0.
TestChunk rounded_chunk(Pattern pattern, DType dtype, std::size_t elements, unsigned zero_bits) {
  TestChunk chunk{.dtype = dtype, .data = make_chunk(pattern, dtype, elements, zero_bits), .base = {}};
  const std::size_t width = element_size(dtype);
  for (std::size_t i = 0; i < elements; ++i) {
    std::uint32_t element = 0;
    std::memcpy(&element, chunk.data.data() + i * width, width);
    element = element >> zero_bits << zero_bits;
    std::memcpy(chunk.data.data() + i * width, &element, width);
  }
  return chunk;
}

// The bits per element of an ideal payload: the entropy of the exponents, and the remaining sign and mantissa bits.
double ideal_short_bits(const TestChunk& chunk, unsigned zero_bits, bool has_signs) {
  const double elements = static_cast<double>(chunk.elements());
  return ideal_bits(chunk.dtype, chunk.data, 8) / elements - zero_bits - (has_signs ? 0 : 1);
}

TEST(FloatSplit, StoresNothingForLowBitsThatAreZero) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const Pattern pattern : {Pattern::trained_like, Pattern::non_negative}) {
      for (unsigned zero_bits = 1; zero_bits <= mantissa_bits_of(dtype); ++zero_bits) {
        SCOPED_TRACE(std::to_string(zero_bits) + " bits of " + std::string(dtype_name(dtype)));
        const TestChunk chunk = rounded_chunk(pattern, dtype, 65536 + 1000 + 3 * zero_bits, zero_bits);
        Scratch scratch;
        const auto payload = round_trip(float_split_encoder(), chunk, scratch);
        ASSERT_TRUE(payload);
        EXPECT_EQ((*payload)[0], static_cast<std::byte>(kShortFlag | zero_bits));
        const bool has_signs = pattern == Pattern::trained_like;
        const double bits = 8 * static_cast<double>(payload->size()) / static_cast<double>(chunk.elements());
        EXPECT_LE(bits, ideal_short_bits(chunk, zero_bits, has_signs) + 0.2);

        const TestSurroundings surroundings(chunk);
        const auto estimate =
            float_split_encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch);
        ASSERT_TRUE(estimate && *estimate);
        EXPECT_NEAR(static_cast<double>((*estimate)->payload_bytes), static_cast<double>(payload->size()),
                    static_cast<double>(payload->size()) / 50);
      }
    }
  }
}

TEST(FloatSplit, ReadsTheShortenedExampleOfItsSpec) {
  TestChunk chunk{.dtype = DType::f32, .data = {}, .base = {}};
  std::string text = "96    01";
  for (std::size_t i = 0; i < 16; ++i) text += "    AA AA AA AA FF FF FF FF";
  for (std::size_t i = 0; i < 20; ++i) text += " 00";
  text += "    01 7F 00";
  for (std::size_t i = 0; i < 512; ++i) text += i / 64 % 2 == 0 ? " 00" : " 01";
  for (std::size_t i = 0; i < 512; ++i) {
    const auto element = elements_of(DType::f32, {i % 2 == 0 ? 0x3FC00000U : 0xBFC00000U});
    chunk.data.insert(chunk.data.end(), element.begin(), element.end());
  }
  Scratch scratch;
  at_every_level([&] {
    const auto decoded = decode_test_chunk(float_split_decoder(), hex_bytes(text), chunk, scratch);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, chunk.data);
  });
}

TEST(FloatSplit, StoresTheFewNonzeroLowBitsAsExceptions) {
  Scratch scratch;
  TestChunk chunk = rounded_chunk(Pattern::trained_like, DType::f32, 70000, 20);
  const auto without = encode_test_chunk(float_split_encoder(), chunk, scratch);
  ASSERT_TRUE(without);
  for (const std::size_t place : {0U, 511U, 512U, 513U, 40000U, 69999U}) chunk.data[4 * place] |= std::byte{1};
  const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->size(), without->size() + 4 + 6 * kExceptionBytes);
  const auto decoded = decode_test_chunk(float_split_decoder(), *payload, chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_TRUE(*decoded == chunk.data);
  for (std::size_t i = 0; i < 300; ++i) chunk.data[4 * (20000 + i)] |= std::byte{1};
  const auto many = encode_test_chunk(float_split_encoder(), chunk, scratch);
  ASSERT_TRUE(many);
  EXPECT_EQ((*many)[0], form_of(FloatSplitForm::planes_rotated)) << "more than one in 256, where no sample looks";
}

TEST(FloatSplit, UsesPlanesForMantissasThatAreNotRandomDespiteZeroBits) {
  Scratch scratch;
  for (const unsigned zero_bits : {8U, 19U}) {
    TestChunk chunk = rounded_chunk(Pattern::trained_like, DType::f32, 70000, zero_bits);
    for (std::size_t i = 0; i < 70000; ++i) {
      if (i % 3 != 0) chunk.data[4 * i + 2] |= std::byte{0x78};
    }
    const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
    ASSERT_TRUE(payload);
    EXPECT_EQ((*payload)[0], form_of(FloatSplitForm::planes_rotated)) << zero_bits;
  }
}

TEST(FloatSplit, RejectsInvalidShortenedElements) {
  Scratch scratch;
  const TestChunk chunk = rounded_chunk(Pattern::trained_like, DType::f32, 33001, 20);
  const auto payload = encode_test_chunk(float_split_encoder(), chunk, scratch);
  ASSERT_TRUE(payload);
  const auto expect_error = [&](const std::vector<std::byte>& bytes, const TestChunk& of, ErrorKind kind,
                                std::string_view complaint) {
    const auto decoded = decode_test_chunk(float_split_decoder(), bytes, of, scratch);
    ASSERT_FALSE(decoded) << complaint;
    EXPECT_EQ(decoded.error().kind(), kind);
    EXPECT_NE(decoded.error().message().find(complaint), std::string::npos) << decoded.error().message();
  };
  auto damaged = *payload;
  damaged[1] = std::byte{2};
  expect_error(damaged, chunk, ErrorKind::corrupt, "sign flag is 2");
  damaged = *payload;
  damaged.push_back(std::byte{0});
  expect_error(damaged, chunk, ErrorKind::corrupt, "after the states");
  damaged = *payload;
  damaged[0] = std::byte{0x80 | 19};
  ASSERT_FALSE(decode_test_chunk(float_split_decoder(), damaged, chunk, scratch)) << "one low bit more";
  for (std::size_t size = 1; size < payload->size(); size += size < 40 ? 1 : 997) {
    expect_error({payload->begin(), payload->begin() + static_cast<std::ptrdiff_t>(size)}, chunk, ErrorKind::truncated,
                 "");
  }
  const TestChunk half{.dtype = DType::f16, .data = std::vector<std::byte>(2000), .base = {}};
  expect_error(hex_bytes("81 00"), half, ErrorKind::corrupt, "which F16 does not allow");
}

TEST(FloatSplit, RejectsSetBitsAfterTheLastPackedElement) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::bf16, .data = std::vector<std::byte>(6), .base = {}};
  const auto good = decode_test_chunk(float_split_decoder(), hex_bytes("02    00 01 02 04    01 7F"), chunk, scratch);
  ASSERT_TRUE(good);
  const auto bad = decode_test_chunk(float_split_decoder(), hex_bytes("02    00 01 02 24    01 7F"), chunk, scratch);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().kind(), ErrorKind::corrupt);
}

TEST(SevenBits, PacksAndUnpacksEveryCount) {
  for (std::size_t count = 1; count < 70; ++count) {
    TestRandom random(count);
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0xFE);
    GuardedBuffer packed(packed_bytes(count));
    pack_plane(bytes.data(), count, packed.span().data());
    ASSERT_TRUE(packed.intact());
    EXPECT_FALSE(padding_is_set(packed.span().data(), count));
    for (std::size_t bit = 0; bit < 7 * count; ++bit) {
      const unsigned expected = std::to_integer<unsigned>(bytes[bit / 7]) >> (bit % 7 + 1) & 1;
      ASSERT_EQ(std::to_integer<unsigned>(packed.span()[bit / 8]) >> bit % 8 & 1, expected) << count << ", " << bit;
    }
    GuardedBuffer unpacked(count);
    unpack_plane(packed.span().data(), count, unpacked.span().data());
    ASSERT_TRUE(unpacked.intact());
    EXPECT_TRUE(std::ranges::equal(unpacked.span(), bytes)) << count;
  }
}

TEST(FloatSplit, AcceptsFloatsWithoutInputsOnly) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(float_split_decoder().accepts(dtype, {}), is_float(dtype)) << dtype_name(dtype);
    const Input base{.kind = InputKind::base, .dtype = dtype, .bytes = {}};
    EXPECT_FALSE(float_split_decoder().accepts(dtype, {&base, 1}));
  }
}

}  // namespace
}  // namespace bitsnap::codec
