// Tests of raw.
#include <gtest/gtest.h>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

TEST(Raw, WritesTheExampleOfItsSpec) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::u16, .data = elements_of(DType::u16, {0x0201, 0x0403}), .base = {}};
  EXPECT_EQ(encode_test_chunk(raw_encoder(), chunk, scratch), hex_bytes("01 02 03 04"));
  const auto decoded = decode_test_chunk(raw_decoder(), hex_bytes("01 02 03 04"), chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(Raw, AcceptsEveryChunk) {
  Scratch scratch;
  for (const Pattern pattern : kAllPatterns) {
    const TestChunk chunk{.dtype = DType::f32, .data = make_chunk(pattern, DType::f32, 100, 1), .base = {}};
    EXPECT_EQ(encode_test_chunk(raw_encoder(), chunk, scratch), chunk.data);
  }
}

TEST(Raw, NamesTheExpectedAndTheFoundSize) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::u8, .data = std::vector<std::byte>(4), .base = {}};
  const auto decoded = decode_test_chunk(raw_decoder(), hex_bytes("01 02 03"), chunk, scratch);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().kind(), ErrorKind::truncated);
  EXPECT_EQ(decoded.error().message(), "raw payload: expected 4 bytes, found 3");
}

}  // namespace
}  // namespace bitsnap::codec
