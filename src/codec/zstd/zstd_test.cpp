// Tests of zstd: the worked example of spec.md, and each kind of invalid frame.
#include <gtest/gtest.h>
#include <zstd.h>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"

namespace bitsnap::codec {
namespace {

// 32 bytes of value 0x61: one run-length block.
constexpr std::string_view kExample = "28 B5 2F FD    20    20    03 01 00    61";

TestChunk run_of(std::size_t size) {
  return {.dtype = DType::u8, .data = std::vector<std::byte>(size, std::byte{0x61}), .base = {}};
}

Result<std::vector<std::byte>> decode(const std::vector<std::byte>& payload, const TestChunk& chunk) {
  Scratch scratch;
  return decode_test_chunk(zstd_decoder(), payload, chunk, scratch);
}

void expect_corrupt(const std::vector<std::byte>& payload, const TestChunk& chunk, std::string_view part_of_message) {
  const auto decoded = decode(payload, chunk);
  ASSERT_FALSE(decoded) << part_of_message;
  EXPECT_EQ(decoded.error().kind(), ErrorKind::corrupt);
  EXPECT_NE(decoded.error().message().find(part_of_message), std::string::npos) << decoded.error().message();
}

// Writes the chunk as one frame, with chosen parameters.
class FrameWriter {
 public:
  ~FrameWriter() { ZSTD_freeCCtx(context_); }

  FrameWriter& set(ZSTD_cParameter parameter, int value) {
    EXPECT_EQ(ZSTD_isError(ZSTD_CCtx_setParameter(context_, parameter, value)), 0U);
    return *this;
  }

  std::vector<std::byte> write(const TestChunk& chunk) {
    std::vector<std::byte> frame(ZSTD_compressBound(chunk.data.size()));
    const std::size_t size = ZSTD_compress2(context_, frame.data(), frame.size(), chunk.data.data(), chunk.data.size());
    EXPECT_EQ(ZSTD_isError(size), 0U);
    frame.resize(size);
    return frame;
  }

 private:
  ZSTD_CCtx* context_ = ZSTD_createCCtx();
};

TEST(Zstd, ReadsTheExampleOfItsSpec) {
  const auto decoded = decode(hex_bytes(kExample), run_of(32));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(*decoded, run_of(32).data);
}

TEST(Zstd, ReadsAFrameWithAChecksumAndVerifiesIt) {
  const TestChunk chunk = run_of(1000);
  auto frame = FrameWriter().set(ZSTD_c_checksumFlag, 1).write(chunk);
  EXPECT_TRUE(decode(frame, chunk));
  frame.back() ^= std::byte{1};
  expect_corrupt(frame, chunk, "checksum");
}

TEST(Zstd, RejectsAFrameOfAnotherSize) {
  expect_corrupt(hex_bytes(kExample), run_of(33), "states 32 bytes, the chunk has 33");
  expect_corrupt(hex_bytes(kExample), run_of(31), "states 32 bytes, the chunk has 31");
}

TEST(Zstd, RejectsAFrameThatDoesNotStateItsSize) {
  const TestChunk chunk = run_of(1000);
  expect_corrupt(FrameWriter().set(ZSTD_c_contentSizeFlag, 0).write(chunk), chunk, "states no size");
}

TEST(Zstd, RejectsASkippableFrame) {
  expect_corrupt(hex_bytes("50 2A 4D 18 04 00 00 00 00 00 00 00"), run_of(32), "is not the magic number of zstd");
}

TEST(Zstd, RejectsASecondSkippableOrEmptyFrame) {
  auto skippable = hex_bytes(kExample);
  const auto tail = hex_bytes("50 2A 4D 18 00 00 00 00");
  skippable.insert(skippable.end(), tail.begin(), tail.end());
  expect_corrupt(skippable, run_of(32), "expected 10 bytes, found 18");
  auto empty = hex_bytes(kExample);
  const auto empty_frame = hex_bytes("28 B5 2F FD 20 00 01 00 00");
  empty.insert(empty.end(), empty_frame.begin(), empty_frame.end());
  expect_corrupt(empty, run_of(32), "expected 10 bytes, found 19");
}

TEST(Zstd, RejectsADictionary) {
  // The example with a dictionary id of one byte: bit 0 of the descriptor, and the id after it.
  expect_corrupt(hex_bytes("28 B5 2F FD    21 07    20    03 01 00    61"), run_of(32), "dictionary");
}

TEST(Zstd, RejectsAWindowLargerThanAnyChunk) {
  // The example with a window and four bytes of content size instead of a single segment: 2^21, then 1/8 more.
  const auto decoded = decode(hex_bytes("28 B5 2F FD    80 58    20 00 00 00    03 01 00    61"), run_of(32));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(*decoded, run_of(32).data);
  expect_corrupt(hex_bytes("28 B5 2F FD    80 59    20 00 00 00    03 01 00    61"), run_of(32), "window");
}

TEST(Zstd, RejectsAPayloadLargerThanTheChunk) {
  const TestChunk chunk{.dtype = DType::u8, .data = make_chunk(Pattern::random, DType::u8, 100, 1), .base = {}};
  expect_corrupt(FrameWriter().write(chunk), chunk, "for a chunk of 100 bytes");
}

TEST(Zstd, RefusesIncompressibleChunks) {
  Scratch scratch;
  const TestChunk chunk{.dtype = DType::u8, .data = make_chunk(Pattern::random, DType::u8, 5000, 1), .base = {}};
  EXPECT_EQ(encode_test_chunk(zstd_encoder(), chunk, scratch), std::nullopt);
}

}  // namespace
}  // namespace bitsnap::codec
