// Tests of byte_group: the worked examples of spec.md, and its sizes.
#include <gtest/gtest.h>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

TEST(ByteGroup, WritesTheExamplesOfItsSpec) {
  Scratch scratch;
  TestChunk chunk{.dtype = DType::bf16, .data = elements_of(DType::bf16, {0x3F80, 0x3F81, 0x3F82, 0x3F83}), .base = {}};
  EXPECT_EQ(encode_test_chunk(byte_group_encoder(), chunk, scratch), hex_bytes("00 80 81 82 83    01 3F"));
  chunk.base = elements_of(DType::bf16, {0x3F80, 0x3F80, 0x3F80, 0x3F80});
  const auto payload = hex_bytes("00 00 01 02 03    01 00");
  EXPECT_EQ(encode_test_chunk(byte_group_encoder(), chunk, scratch), payload);
  const auto decoded = decode_test_chunk(byte_group_decoder(), payload, chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(ByteGroup, ReadsAllPlanesOfAGroupBeforeTheNextGroup) {
  Scratch scratch;
  TestChunk chunk{.dtype = DType::bf16, .data = std::vector<std::byte>(2 * 65537), .base = {}};
  const auto decoded = decode_test_chunk(byte_group_decoder(), hex_bytes("01 80 01 3F    01 01 01 40"), chunk, scratch);
  ASSERT_TRUE(decoded) << decoded.error().message();
  for (std::size_t i = 0; i < chunk.data.size(); ++i) chunk.data[i] = i % 2 == 0 ? std::byte{0x80} : std::byte{0x3F};
  chunk.data[2 * 65536] = std::byte{0x01};
  chunk.data[2 * 65536 + 1] = std::byte{0x40};
  EXPECT_TRUE(*decoded == chunk.data);
}

TEST(ByteGroup, TakesTwoBytesPerUnchangedPlaneOfAGroup) {
  Scratch scratch;
  TestChunk chunk{.dtype = DType::f32, .data = make_chunk(Pattern::random, DType::f32, 65537, 1), .base = {}};
  chunk.base = chunk.data;
  const auto payload = encode_test_chunk(byte_group_encoder(), chunk, scratch);
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->size(), 2 * 4 * 2U);
}

TEST(ByteGroup, ShrinksTheExponentsOfWeights) {
  Scratch scratch;
  const TestChunk chunk{
      .dtype = DType::bf16, .data = make_chunk(Pattern::trained_like, DType::bf16, 65536, 1), .base = {}};
  const auto payload = encode_test_chunk(byte_group_encoder(), chunk, scratch);
  ASSERT_TRUE(payload);
  EXPECT_LT(payload->size(), chunk.data.size() * 3 / 4);
}

TEST(ByteGroup, NamesThePlaneAndTheOffsetOfDamage) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::bf16, .data = std::vector<std::byte>(8), .base = {}};
  const auto decoded = decode_test_chunk(byte_group_decoder(), hex_bytes("01 00 09 00"), chunk, scratch);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
  EXPECT_TRUE(decoded.error().message().starts_with("byte plane 1 from element 0, payload offset 2: "))
      << decoded.error().message();
}

TEST(ByteGroup, AcceptsAtMostABaseOfItsDtype) {
  const Input base{.kind = InputKind::base, .dtype = DType::f32, .bytes = {}};
  const Input peer{.kind = InputKind::peer, .dtype = DType::f32, .bytes = {}};
  const Input other{.kind = InputKind::base, .dtype = DType::i32, .bytes = {}};
  EXPECT_TRUE(byte_group_decoder().accepts(DType::f32, {}));
  EXPECT_TRUE(byte_group_decoder().accepts(DType::f32, {&base, 1}));
  EXPECT_FALSE(byte_group_decoder().accepts(DType::f32, {&peer, 1}));
  EXPECT_FALSE(byte_group_decoder().accepts(DType::f32, {&other, 1}));
}

}  // namespace
}  // namespace bitsnap::codec
