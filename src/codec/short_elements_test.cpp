// Tests of shortened elements: the kernels against the specification, the choice of bits to leave out, exceptions, and
// invalid heads.
#include <gtest/gtest.h>

#include <bitsnap/cpu.hpp>

#include "codec/coding_testing.hpp"
#include "codec/short_elements_encode.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

std::uint32_t element_at(ConstByteSpan bytes, std::size_t i, std::size_t element_bytes) {
  std::uint32_t element = 0;
  std::memcpy(&element, bytes.data() + i * element_bytes, element_bytes);
  return element;
}

class ShortElements : public testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(ShortElements, KeepTheSignAndLackTheLowBitsOfTheMagnitude) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const std::size_t width = element_size(dtype);
    for (unsigned zero_bits = 1; zero_bits <= mantissa_bits_of(dtype); ++zero_bits) {
      const ShortFloats floats{.dtype = dtype, .zero_bits = zero_bits};
      const std::size_t short_width = floats.element_bytes();
      for (const std::size_t elements : {1U, 31U, 517U}) {
        const auto data = make_chunk(Pattern::random, dtype, elements, zero_bits);
        std::uint32_t joined = 0;
        for (std::size_t i = 0; i < elements; ++i) joined |= element_at(data, i, width);
        at_every_level([&] {
          GuardedBuffer shortened(elements * short_width);
          EXPECT_EQ(shorten_elements(data, floats, shortened.span().data()), joined & ((1U << zero_bits) - 1));
          ASSERT_TRUE(shortened.intact());
          GuardedBuffer again(data.size());
          lengthen_elements(shortened.span().data(), floats, again.span());
          ASSERT_TRUE(again.intact());
          for (std::size_t i = 0; i < elements; ++i) {
            const std::uint32_t element = element_at(data, i, width);
            const std::uint32_t sign = element >> (8 * width - 1);
            const std::uint32_t magnitude = element - (sign << (8 * width - 1));
            ASSERT_EQ(element_at(shortened.span(), i, short_width),
                      (sign << (8 * short_width - 1)) + (magnitude >> zero_bits));
            ASSERT_EQ(element_at(again.span(), i, width), element >> zero_bits << zero_bits);
          }
        });
      }
    }
  }
}

TEST_F(ShortElements, LengtheningCutsOffExcessBits) {
  const ShortFloats floats{.dtype = DType::f32, .zero_bits = 23};
  const auto shortened = hex_bytes("FF 7F 00 FE");
  at_every_level([&] {
    std::vector<std::byte> elements(8);
    lengthen_elements(shortened.data(), floats, elements);
    EXPECT_EQ(elements, elements_of(DType::f32, {0x7F800000, 0x80000000}));
  });
}

// Trained-like elements with zero_bits low bits set to 0.
std::vector<std::byte> rounded(DType dtype, std::size_t elements, unsigned zero_bits, std::uint64_t seed) {
  auto data = make_chunk(Pattern::trained_like, dtype, elements, seed);
  const std::size_t width = element_size(dtype);
  for (std::size_t i = 0; i < elements; ++i) {
    const std::uint32_t element = element_at(data, i, width) >> zero_bits << zero_bits;
    std::memcpy(data.data() + i * width, &element, width);
  }
  return data;
}

TEST_F(ShortElements, LackTheBitsThatAreZeroInNearlyAllElements) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (unsigned zero_bits = 0; zero_bits <= mantissa_bits_of(dtype); ++zero_bits) {
      auto data = rounded(dtype, 70000, zero_bits, zero_bits);
      EXPECT_EQ(choose_zero_bits(data, dtype), zero_bits) << dtype_name(dtype);
      for (std::size_t i = 0; i < 70000; i += 1000) data[i * element_size(dtype)] |= std::byte{1};
      EXPECT_EQ(choose_zero_bits(data, dtype), zero_bits) << "one exception in a thousand";
      for (std::size_t i = 0; i < 70000; i += 10) data[i * element_size(dtype)] |= std::byte{1};
      EXPECT_EQ(choose_zero_bits(data, dtype), 0U) << "one in ten";
    }
  }
}

TEST_F(ShortElements, AreNotMadeFromZeros) {
  EXPECT_EQ(choose_zero_bits(std::vector<std::byte>(4000), DType::f32), 0U);
  auto data = make_chunk(Pattern::trained_like, DType::f32, 70000, 1);
  for (std::size_t i = 0; i < 70000; ++i) {
    if (i % 512 != 0) std::memset(data.data() + 4 * i, 0, 4);
  }
  EXPECT_EQ(choose_zero_bits(data, DType::f32), 0U) << "the others have no zeros in common";
}

TEST_F(ShortElements, RoundTripWithTheirExceptions) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const std::size_t width = element_size(dtype);
    for (const std::size_t exceptions : {0U, 1U, 2U, 9U, 10U}) {
      auto data = rounded(dtype, 2305, 5, 1);
      TestRandom random(exceptions);
      for (std::size_t i = 0; i < exceptions; ++i) data[(i == 0 ? 2304 : 7 + 200 * i) * width] |= std::byte{0x11};
      const ShortFloats floats{.dtype = dtype, .zero_bits = 5};
      Shortener shortener;
      ASSERT_TRUE(shortener.open(floats, 2305, scratch_));
      std::vector<std::byte> shortened(2305 * floats.element_bytes());
      // In parts, the last part first.
      for (const std::size_t first : {2000U, 0U}) {
        const std::size_t count = first == 0 ? 2000 : 305;
        ASSERT_TRUE(shortener.shorten(first, ConstByteSpan(data).subspan(first * width, count * width),
                                      shortened.data() + first * floats.element_bytes()));
      }
      std::vector<std::byte> head(shortener.head_bytes());
      EXPECT_EQ(head.size(), exceptions == 0 ? 1 : 5 + 8 * exceptions);
      EXPECT_LE(head.size(), max_short_head_bytes(2305));
      EXPECT_EQ(shortener.write_head(head.data()), head.data() + head.size());
      ByteCursor cursor(head);
      const auto read = read_short_head(cursor, {.dtype = dtype, .elements = 2305, .inputs = {}});
      ASSERT_TRUE(read) << read.error().message();
      EXPECT_EQ(cursor.remaining(), 0U);
      std::vector<std::byte> again(data.size());
      lengthen_elements(shortened.data(), read->floats, again);
      put_exceptions(*read, again);
      EXPECT_TRUE(again == data);
    }
    auto data = rounded(dtype, 2305, 5, 1);
    for (std::size_t i = 0; i < 11; ++i) data[200 * i * width] |= std::byte{1};
    Shortener shortener;
    ASSERT_TRUE(shortener.open({.dtype = dtype, .zero_bits = 5}, 2305, scratch_));
    EXPECT_FALSE(shortener.shorten(0, data, std::vector<std::byte>(data.size()).data()))
        << "11 of 2,305 is more than 1 in 256";
  }
}

TEST_F(ShortElements, RejectInvalidHeads) {
  struct Case {
    const char* head;
    DType dtype;
    const char* complaint;
  };
  for (const auto& [head, dtype, complaint] :
       {Case{"80", DType::f32, "first byte is 128"}, Case{"98", DType::f32, "expected 1 to 23"},
        Case{"A1", DType::f32, "first byte is 161"}, Case{"88", DType::bf16, "expected 1 to 7"},
        Case{"8B", DType::f16, "expected 1 to 10"}, Case{"81", DType::f64, "expected 1 to 0"},
        Case{"C4 00 00 00 00", DType::f32, "0 exceptions, expected 1 to 2"},
        Case{"C4 03 00 00 00", DType::f32, "3 exceptions"},
        Case{"C4 01 00 00 00  2C 01 00 00 01 00 00 00", DType::f32, "at index 300, expected at least 0 and below 300"},
        Case{"C4 02 00 00 00  07 00 00 00 01 00 00 00  07 00 00 00 01 00 00 00", DType::f32,
             "at least 8 and below 300"},
        Case{"C4 01 00 00 00  07 00 00 00 00 00 00 00", DType::f32, "an exception has the bits 0"},
        Case{"C4 01 00 00 00  07 00 00 00 10 00 00 00", DType::f32, "an exception has the bits 16"}}) {
    const auto bytes = hex_bytes(head);
    ByteCursor cursor(bytes);
    const auto read = read_short_head(cursor, {.dtype = dtype, .elements = 300, .inputs = {}});
    ASSERT_FALSE(read) << head;
    EXPECT_EQ(read.error().kind(), ErrorKind::corrupt);
    EXPECT_NE(read.error().message().find(complaint), std::string::npos) << read.error().message();
  }
  const auto whole = hex_bytes("C4 02 00 00 00  07 00 00 00 01 00 00 00  09 00 00 00 0F 00 00 00");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    ByteCursor cursor(ConstByteSpan(whole).first(size));
    const auto read = read_short_head(cursor, {.dtype = DType::f32, .elements = 300, .inputs = {}});
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind(), ErrorKind::truncated);
  }
}

}  // namespace
}  // namespace bitsnap::codec
