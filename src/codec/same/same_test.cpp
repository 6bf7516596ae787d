// Tests of same.
#include <gtest/gtest.h>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

TEST(Same, WritesTheExampleOfItsSpec) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::bf16, .data = hex_bytes("80 3F 00 40"), .base = hex_bytes("80 3F 00 40")};
  EXPECT_EQ(encode_test_chunk(same_encoder(), chunk, scratch), std::vector<std::byte>());
  const auto decoded = decode_test_chunk(same_decoder(), {}, chunk, scratch);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(*decoded, chunk.data);
}

TEST(Same, RefusesAChunkThatDiffersInOneBit) {
  Scratch scratch;
  TestChunk chunk{.dtype = DType::f32, .data = make_chunk(Pattern::random, DType::f32, 1000, 1), .base = {}};
  for (const std::size_t at : {std::size_t{0}, std::size_t{2000}, chunk.data.size() - 1}) {
    chunk.base = chunk.data;
    chunk.base[at] ^= std::byte{0x10};
    EXPECT_EQ(encode_test_chunk(same_encoder(), chunk, scratch), std::nullopt) << at;
  }
}

TEST(Same, AcceptsABaseOrAPeerOfItsDtypeOnly) {
  const Input base{.kind = InputKind::base, .dtype = DType::f32, .bytes = {}};
  const Input peer{.kind = InputKind::peer, .dtype = DType::f32, .bytes = {}};
  const Input other{.kind = InputKind::base, .dtype = DType::u32, .bytes = {}};
  const Input two[] = {base, peer};
  EXPECT_TRUE(same_decoder().accepts(DType::f32, {&base, 1}));
  EXPECT_TRUE(same_decoder().accepts(DType::f32, {&peer, 1}));
  EXPECT_FALSE(same_decoder().accepts(DType::f32, {&other, 1}));
  EXPECT_FALSE(same_decoder().accepts(DType::f32, two));
  EXPECT_FALSE(same_decoder().accepts(DType::f32, {}));
}

}  // namespace
}  // namespace bitsnap::codec
