// Tests of bitmask: the worked example of spec.md, the sizes that BitSnap states, and the padding of the mask.
#include <gtest/gtest.h>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

TestChunk ten_elements() {
  TestChunk chunk{.dtype = DType::u16, .data = std::vector<std::byte>(20, std::byte{0x07}), .base = {}};
  chunk.base = chunk.data;
  const auto changed = elements_of(DType::u16, {0x1234, 0x5678});
  std::copy_n(changed.begin(), 2, chunk.data.begin() + 2);
  std::copy_n(changed.begin() + 2, 2, chunk.data.begin() + 18);
  return chunk;
}

TEST(Bitmask, WritesTheExampleOfItsSpec) {
  Scratch scratch;
  const TestChunk chunk = ten_elements();
  const auto payload = hex_bytes("02 02    34 12 78 56");
  EXPECT_EQ(encode_test_chunk(bitmask_encoder(), chunk, scratch), payload);
  const auto decoded = decode_test_chunk(bitmask_decoder(), payload, chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(Bitmask, RejectsBitsAfterTheLastElement) {
  Scratch scratch;
  const auto decoded =
      decode_test_chunk(bitmask_decoder(), hex_bytes("02 06 34 12 78 56 00 00"), ten_elements(), scratch);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
}

TEST(Bitmask, RejectsMasksWithTooManyOrTooFewBits) {
  Scratch scratch;
  const auto more = decode_test_chunk(bitmask_decoder(), hex_bytes("03 02 34 12 78 56"), ten_elements(), scratch);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().kind(), ErrorKind::truncated);
  const auto less = decode_test_chunk(bitmask_decoder(), hex_bytes("00 02 34 12 78 56"), ten_elements(), scratch);
  ASSERT_FALSE(less);
  EXPECT_EQ(less.error().kind(), ErrorKind::corrupt);
}

TEST(Bitmask, TakesOneBitPerElementAndSixteenPerChangedBf16) {
  Scratch scratch;
  constexpr std::size_t kElements = 8000;
  TestChunk chunk{.dtype = DType::bf16, .data = make_chunk(Pattern::random, DType::bf16, kElements, 1), .base = {}};
  chunk.base = chunk.data;
  for (std::size_t i = 0; i < 80; ++i) chunk.base[i * 200] ^= std::byte{1};
  const auto payload = encode_test_chunk(bitmask_encoder(), chunk, scratch);
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->size(), kElements / 8 + 80 * 2) << "13.8x at one percent changed";
}

TEST(Bitmask, RefusesAChunkWithTooManyChanges) {
  Scratch scratch;
  TestChunk chunk{.dtype = DType::bf16, .data = make_chunk(Pattern::random, DType::bf16, 1600, 1), .base = {}};
  chunk.base = chunk.data;
  for (std::size_t i = 0; i < 1499; ++i) chunk.base[2 * i] ^= std::byte{1};
  EXPECT_TRUE(encode_test_chunk(bitmask_encoder(), chunk, scratch)) << "200 + 2998 bytes of 3200";
  chunk.base[2 * 1499] ^= std::byte{1};
  EXPECT_EQ(encode_test_chunk(bitmask_encoder(), chunk, scratch), std::nullopt) << "200 + 3000 bytes of 3200";
}

TEST(Bitmask, ComparesBitsInsteadOfValues) {
  Scratch scratch;
  TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(64 * 4), .base = {}};
  chunk.base = chunk.data;
  chunk.base[3] = std::byte{0x80};  // element 0 is -0 in the base and +0 in the chunk
  const auto payload = encode_test_chunk(bitmask_encoder(), chunk, scratch);
  ASSERT_TRUE(payload);
  EXPECT_EQ(*payload, hex_bytes("01 00 00 00 00 00 00 00    00 00 00 00"));
}

}  // namespace
}  // namespace bitsnap::codec
