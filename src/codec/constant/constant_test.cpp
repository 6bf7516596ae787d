// Tests of constant: the worked example of spec.md, and which chunks are constant.
#include <gtest/gtest.h>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

TEST(Constant, WritesTheExampleOfItsSpec) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::bf16, .data = elements_of(DType::bf16, {0x3F80, 0x3F80, 0x3F80}), .base = {}};
  EXPECT_EQ(encode_test_chunk(constant_encoder(), chunk, scratch), hex_bytes("80 3F"));
  const auto decoded = decode_test_chunk(constant_decoder(), hex_bytes("80 3F"), chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(Constant, ComparesBitsInsteadOfValues) {
  Scratch scratch;
  const TestChunk zeros{.dtype = DType::f32, .data = elements_of(DType::f32, {0x00000000, 0x80000000}), .base = {}};
  EXPECT_EQ(encode_test_chunk(constant_encoder(), zeros, scratch), std::nullopt) << "+0 and -0 are two things";
  const TestChunk nans{.dtype = DType::f32, .data = elements_of(DType::f32, {0x7FC00001, 0x7FC00001}), .base = {}};
  EXPECT_EQ(encode_test_chunk(constant_encoder(), nans, scratch), hex_bytes("01 00 C0 7F"));
}

TEST(Constant, RefusesAChunkWhoseLastElementDiffers) {
  Scratch scratch;
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    for (const std::size_t elements : {2U, 65U, 4096U, 4097U}) {
      TestChunk chunk{.dtype = dtype, .data = make_chunk(Pattern::zeros, dtype, elements, 1), .base = {}};
      chunk.data.back() = std::byte{1};
      EXPECT_EQ(encode_test_chunk(constant_encoder(), chunk, scratch), std::nullopt) << elements;
    }
  }
}

TEST(Constant, EstimatesOneElementForAnyLength) {
  Scratch scratch;
  const TestChunk sample{.dtype = DType::f32, .data = make_chunk(Pattern::zeros, DType::f32, 64, 1), .base = {}};
  const TestSurroundings surroundings(sample);
  const auto estimate = constant_encoder().analyze(sample.data, surroundings.context(), 262144, scratch);
  ASSERT_TRUE(estimate);
  ASSERT_TRUE(estimate->has_value());
  EXPECT_EQ((*estimate)->payload_bytes, 4U);
}

}  // namespace
}  // namespace bitsnap::codec
