// Tests of ordinal_delta with shortened elements: sizes compared with a narrower dtype, and invalid payloads.
#include <gtest/gtest.h>

#include <bitsnap/cpu.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/ordinal_delta/ordinal_delta.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

std::uint32_t element_of(const std::vector<std::byte>& data, std::size_t i, std::size_t width) {
  std::uint32_t element = 0;
  std::memcpy(&element, data.data() + i * width, width);
  return element;
}

void round_elements(std::vector<std::byte>& data, DType dtype, unsigned zero_bits) {
  const std::size_t width = element_size(dtype);
  for (std::size_t i = 0; i < data.size() / width; ++i) {
    const std::uint32_t element = element_of(data, i, width) >> zero_bits << zero_bits;
    std::memcpy(data.data() + i * width, &element, width);
  }
}

// Elements with zero_bits low bits set to 0, and a base with all bits.
TestChunk rounded_chunk(DType dtype, std::size_t elements, unsigned zero_bits, BaseKind base) {
  TestChunk chunk{.dtype = dtype, .data = make_chunk(Pattern::trained_like, dtype, elements, zero_bits), .base = {}};
  chunk.base = make_base(base, chunk.data, element_size(dtype), zero_bits);
  round_elements(chunk.data, dtype, zero_bits);
  return chunk;
}

class ShortDeltas : public CodecTest {
 protected:
  ShortDeltas() : CodecTest(ordinal_delta_encoder()) {}
};

TEST_F(ShortDeltas, RoundTripWithAnyNumberOfZeroBits) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (unsigned zero_bits = 1; zero_bits <= mantissa_bits_of(dtype); ++zero_bits) {
      for (const BaseKind base : {BaseKind::equal, BaseKind::sparse, BaseKind::near, BaseKind::drifted}) {
        SCOPED_TRACE(std::to_string(zero_bits) + " bits of " + std::string(dtype_name(dtype)));
        TestChunk chunk = rounded_chunk(dtype, 20000 + 77 * zero_bits, zero_bits, base);
        chunk.data[element_size(dtype) * 19999] |= std::byte{1};
        const std::vector<std::byte> payload = expect_round_trip(chunk);
        EXPECT_EQ(payload[0], static_cast<std::byte>(kShortFlag | kShortExceptions | zero_bits));
      }
    }
  }
}

TEST_F(ShortDeltas, TakeTheSameAsElementsOfANarrowerDtype) {
  for (const BaseKind base : {BaseKind::sparse, BaseKind::near, BaseKind::drifted}) {
    TestChunk narrow{
        .dtype = DType::bf16, .data = make_chunk(Pattern::trained_like, DType::bf16, 65536, 1), .base = {}};
    narrow.base = make_base(base, narrow.data, 2, 1);
    TestChunk wide{.dtype = DType::f32, .data = {}, .base = {}};
    TestRandom random(1);
    for (std::size_t i = 0; i < 65536; ++i) {
      const std::uint32_t element = element_of(narrow.data, i, 2) << 16;
      // The base's bits below have no effect.
      const std::uint32_t below =
          element_of(narrow.base, i, 2) << 16 | static_cast<std::uint32_t>(random.next() & 0xffff);
      const auto* const bytes = reinterpret_cast<const std::byte*>(&element);
      const auto* const base_bytes = reinterpret_cast<const std::byte*>(&below);
      wide.data.insert(wide.data.end(), bytes, bytes + 4);
      wide.base.insert(wide.base.end(), base_bytes, base_bytes + 4);
    }
    const auto of_narrow = encode_test_chunk(ordinal_delta_encoder(), narrow, scratch_);
    const auto of_wide = encode_test_chunk(ordinal_delta_encoder(), wide, scratch_);
    ASSERT_TRUE(of_narrow && of_wide);
    EXPECT_EQ(of_wide->size(), of_narrow->size() + 1) << base_kind_name(base);
    EXPECT_TRUE(std::equal(of_narrow->begin(), of_narrow->end(), of_wide->begin() + 1));

    const TestSurroundings narrow_surroundings(narrow);
    const TestSurroundings surroundings(wide);
    const auto narrow_estimate =
        ordinal_delta_encoder().analyze(narrow.data, narrow_surroundings.context(), 65536, scratch_);
    const auto estimate = ordinal_delta_encoder().analyze(wide.data, surroundings.context(), 65536, scratch_);
    ASSERT_TRUE(narrow_estimate && *narrow_estimate && estimate && *estimate);
    EXPECT_EQ((*estimate)->payload_bytes, (*narrow_estimate)->payload_bytes);
  }
}

TEST_F(ShortDeltas, AreNotUsedIfUnsampledElementsHaveLowBits) {
  TestChunk chunk = rounded_chunk(DType::f32, 100000, 12, BaseKind::near);
  for (std::size_t i = 0; i < 1000; ++i) chunk.data[4 * (50000 + i)] |= std::byte{1};
  EXPECT_EQ(expect_round_trip(chunk)[0], static_cast<std::byte>(OrdinalDeltaForm::dense));
}

TEST_F(ShortDeltas, HaveNoFloors) {
  const TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(40), .base = std::vector<std::byte>(40)};
  expect_refused("81 02 80", chunk, "form is 2, expected at most 1 for shortened F32");
  expect_refused("81 81", chunk, "form is 129, expected at most 1 for shortened F32");
}

TEST_F(ShortDeltas, WriteTheExampleOfTheirSpec) {
  const TestChunk chunk{.dtype = DType::f32,
                        .data = elements_of(DType::f32, {0x3F800000, 0x3F900000, 0x3F800000, 0x3F500000}),
                        .base = elements_of(DType::f32, {0x3F800000, 0x3F8FFFFF, 0x3F800001, 0x3F8ABCDE})};
  const auto payload = hex_bytes("94    01 7F 01    02 00 00 00 01 00 00 00    AA 02");
  const auto decoded = decode_test_chunk(ordinal_delta_decoder(), payload, chunk, scratch_);
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(*decoded, chunk.data);
}

}  // namespace
}  // namespace bitsnap::codec
