// Tests of factored_split: the worked examples of spec.md, matrices with scales by row and column, pieces of matrices,
// rows of zeros, and invalid payloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <bitsnap/cpu.hpp>

#include "codec/builtin_codecs.hpp"
#include "codec/coding_testing.hpp"
#include "codec/factored_split/factored_split.hpp"
#include "codec/trained_like_testing.hpp"

namespace bitsnap::codec {
namespace {

constexpr DType kFactoredDTypes[] = {DType::f16, DType::bf16, DType::f32};

// How the scales of a matrix vary, and where its chunk begins.
struct Matrix {
  DType dtype = DType::f32;
  std::size_t row_elements = 512;
  std::size_t first_column = 0;
  std::size_t elements = 65536;
  double row_octaves = 2;  // range of the row scales
  double column_octaves = 2;
  bool with_signs = false;
  std::uint64_t seed = 1;
};

// Elements that are the product of a row scale, a column scale, and a normal number or its square, which is not too
// small.
TestChunk moments(const Matrix& matrix) {
  TestRandom random(matrix.seed);
  const std::size_t width = element_size(matrix.dtype);
  TestChunk chunk{.dtype = matrix.dtype,
                  .data = std::vector<std::byte>(matrix.elements * width),
                  .base = {},
                  .rows = {.row_elements = matrix.row_elements, .first_column = matrix.first_column}};
  std::vector<double> columns(matrix.row_elements);
  for (double& column : columns) column = matrix.column_octaves * random.normal();
  double row = matrix.row_octaves * random.normal();
  std::size_t column = matrix.first_column;
  const double middle = matrix.dtype == DType::f16 ? 0.1 : 1e-9;
  for (std::size_t i = 0; i < matrix.elements; ++i) {
    if (column == matrix.row_elements) {
      column = 0;
      row = matrix.row_octaves * random.normal();
    }
    const double normal = random.normal();
    const double left = matrix.with_signs ? normal : 0.01 + normal * normal;
    const std::uint64_t bits = element_bits(matrix.dtype, middle * std::exp2(row + columns[column]) * left);
    std::memcpy(chunk.data.data() + i * width, &bits, width);
    ++column;
  }
  return chunk;
}

class FactoredSplit : public CodecTest {
 protected:
  FactoredSplit() : CodecTest(factored_split_encoder()) {}

  std::size_t size_of(const Encoder& encoder, const TestChunk& chunk) {
    const auto payload = encode_test_chunk(encoder, chunk, scratch_);
    return payload ? payload->size() : chunk.data.size();
  }
};

// `count` times `byte`, for hex_bytes().
std::string times(std::size_t count, std::string_view byte) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += " " + std::string(byte);
  return text;
}

// The last example of rans.md: the single value 5.
std::string value_five() {
  return "01 02" + times(31, "00") + times(2, "80") + times(14 + 16 + 1, "00") + " 02" + times(2 + 8, "00") + " 01" +
         times(63, "00") + " 80" + times(63, "00") + times(64, "02") + times(3, times(64, "00") + times(64, "02"));
}

TEST_F(FactoredSplit, WritesTheEmptyExampleOfItsSpec) {
  const TestChunk zeros{.dtype = DType::f32, .data = std::vector<std::byte>(256), .base = {}};
  EXPECT_EQ(expect_round_trip(zeros), hex_bytes("00 04 00 00 00 02 00 00 00 00 00 00 00"));
}

TEST_F(FactoredSplit, ReadsTheExampleWithColumnsOfItsSpec) {
  const TestChunk one{.dtype = DType::bf16, .data = elements_of(DType::bf16, {0x3F80}), .base = {}};
  const auto payload = hex_bytes("04 12 6F 3F 40 00 00 00 3F 00 00 00 03" + times(31, "00") + " 20 " + value_five());
  at_every_level([&] {
    const auto decoded = decode_test_chunk(factored_split_decoder(), payload, one, scratch_);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, one.data);
  });
}

TEST_F(FactoredSplit, SizesDoNotDependOnTheScales) {
  // The same normal numbers, without scales and with scales over 16 octaves.
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const bool with_signs : {false, true}) {
      const TestChunk flat = moments({.dtype = dtype,
                                      .elements = kChunkElements,
                                      .row_octaves = 0,
                                      .column_octaves = 0,
                                      .with_signs = with_signs});
      const TestChunk factored = moments({.dtype = dtype, .elements = kChunkElements, .with_signs = with_signs});
      const std::size_t flat_size = expect_round_trip(flat).size();
      const std::size_t factored_size = expect_round_trip(factored).size();
      EXPECT_LE(factored_size, flat_size + flat_size / 80) << dtype_name(dtype) << ", signs " << with_signs;
      // It must save at least half a bit per element.
      EXPECT_LE(factored_size + kChunkElements / 16, size_of(float_split_encoder(), factored))
          << dtype_name(dtype) << ", signs " << with_signs;
    }
  }
}

TEST_F(FactoredSplit, SavesByRowScalesIfRowsAreUnknown) {
  TestChunk chunk = moments({.elements = kChunkElements, .column_octaves = 0});
  const std::size_t known = expect_round_trip(chunk).size();
  chunk.rows = {};
  const std::size_t unknown = expect_round_trip(chunk).size();
  EXPECT_LE(unknown, known + known / 100) << "rows of 512 are what it takes then";
  EXPECT_LE(unknown + kChunkElements / 32, size_of(float_split_encoder(), chunk));
}

TEST_F(FactoredSplit, FindsUnknownRowLengths) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const std::size_t row : {320U, 1024U, 4096U, 11008U}) {
      for (const bool with_signs : {false, true}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + ", rows of " + std::to_string(row));
        TestChunk chunk = moments({.dtype = dtype,
                                   .row_elements = row,
                                   .first_column = row / 3,
                                   .elements = kChunkElements,
                                   .row_octaves = 1,
                                   .with_signs = with_signs});
        const std::size_t known = size_of(factored_split_encoder(), chunk);
        chunk.rows = {};
        const auto payload = expect_round_trip(chunk);
        ASSERT_GE(payload.size(), kFactoredHeaderBytes);
        EXPECT_EQ(load_le<std::uint32_t>(payload.data() + 4), row);
        // It does not search for where rows begin.
        EXPECT_LE(payload.size(), known + known / 40);
      }
    }
  }
  // Without column scales, or with rows of another length than a multiple of 64, it finds nothing.
  TestChunk chunk = moments({.elements = kChunkElements, .column_octaves = 0});
  chunk.rows = {};
  EXPECT_EQ(load_le<std::uint32_t>(expect_round_trip(chunk).data() + 4), 512U);
  chunk = moments({.row_elements = 333, .elements = kChunkElements});
  chunk.rows = {};
  EXPECT_EQ(load_le<std::uint32_t>(expect_round_trip(chunk).data() + 4), 512U);
}

TEST_F(FactoredSplit, RoundTripsPiecesAtAnyPlaceOfRowsOfAnyLength) {
  for (const DType dtype : kFactoredDTypes) {
    for (const std::size_t row : {64U, 65U, 100U, 511U, 1000U, 1027U, 4099U}) {
      for (const std::size_t first : {std::size_t{0}, std::size_t{1}, row / 2, row - 1}) {
        for (const std::size_t elements : {row * 8 + 70, row * 9 + 1, row * 20 - first}) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + ", rows of " + std::to_string(row) + " from " +
                       std::to_string(first) + ", " + std::to_string(elements));
          const TestChunk chunk = moments({.dtype = dtype,
                                           .row_elements = row,
                                           .first_column = first,
                                           .elements = elements,
                                           .with_signs = row % 2 == 0});
          // Few short rows do not pay for the lane states.
          if (elements >= 4000) expect_round_trip(chunk);
        }
      }
    }
  }
}

TEST_F(FactoredSplit, FindsTheScalesOfAPieceInTheMiddle) {
  const TestChunk whole = moments({.row_elements = 768, .elements = 768 * 200});
  const auto begin = static_cast<std::ptrdiff_t>(4 * (768 * 50 + 700));
  TestChunk piece{.dtype = DType::f32,
                  .data = {whole.data.begin() + begin, whole.data.end() - 4 * 300},
                  .base = {},
                  .rows = {.row_elements = 768, .first_column = 700}};
  const auto share = [&](const TestChunk& chunk) {
    return static_cast<double>(expect_round_trip(chunk).size()) / static_cast<double>(chunk.data.size());
  };
  const double found = share(piece);
  EXPECT_LE(found, share(whole) * 1.005);
  // With a wrong start, each row has parts of two rows; with a wrong length, columns mix.
  piece.rows.first_column = 300;
  EXPECT_GE(share(piece), found * 1.005);
  piece.rows.row_elements = 767;
  EXPECT_GE(share(piece), found * 1.02);
}

TEST_F(FactoredSplit, StoresNothingForRowsOfZeros) {
  const Matrix matrix{.row_elements = 512, .elements = 512 * 100};
  const TestChunk full = moments(matrix);
  TestChunk sparse{
      .dtype = DType::f32, .data = std::vector<std::byte>(4 * full.data.size()), .base = {}, .rows = full.rows};
  constexpr std::size_t kRowBytes = 512 * 4;
  for (std::size_t row = 0; row < 100; ++row) {
    std::memcpy(sparse.data.data() + 4 * row * kRowBytes + kRowBytes, full.data.data() + row * kRowBytes, kRowBytes);
  }
  EXPECT_LE(expect_round_trip(sparse).size(), expect_round_trip(full).size() + 600);
}

TEST_F(FactoredSplit, KeepsEveryBitOfZerosInfinitiesAndNaNsAmongOthers) {
  for (const DType dtype : kFactoredDTypes) {
    for (const bool with_signs : {false, true}) {
      TestChunk chunk = moments({.dtype = dtype, .with_signs = with_signs});
      const TestChunk special{
          .dtype = dtype, .data = make_chunk(Pattern::special_floats, dtype, chunk.elements(), 1), .base = {}};
      TestRandom random(7);
      const std::size_t width = element_size(dtype);
      for (std::size_t i = 0; i < chunk.data.size(); i += width) {
        if (random.below(40) == 0) std::memcpy(chunk.data.data() + i, special.data.data() + i, width);
        // And a row with little else.
        if (i / width / 512 == 3) std::memcpy(chunk.data.data() + i, special.data.data() + i, width);
      }
      expect_round_trip(chunk);
    }
  }
}

TEST_F(FactoredSplit, EscapesRowsWithoutElementsNearTheirScale) {
  // A third of the elements, in their own rows, is far above or below the others.
  TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(4 * 512 * 96), .base = {}};
  TestRandom random(3);
  for (std::size_t i = 0; i < chunk.elements(); ++i) {
    const bool is_far = i / 512 % 3 == 0;
    const std::uint32_t exponent = !is_far ? 120 : (i % 2 == 0 ? 20 : 220);
    const auto bits = static_cast<std::uint32_t>(exponent << 23 | (random.next() & 0x7fffff));
    std::memcpy(chunk.data.data() + 4 * i, &bits, 4);
  }
  expect_round_trip(chunk);
}

TEST_F(FactoredSplit, EstimatesTheSizeFromAFewRowsAndColumns) {
  for (const std::size_t row : {64U, 320U, 1024U, 8192U, 30000U, 100000U}) {
    for (const bool with_signs : {false, true}) {
      const TestChunk chunk =
          moments({.row_elements = row, .first_column = row / 3, .elements = kChunkElements, .with_signs = with_signs});
      const TestSurroundings surroundings(chunk);
      const auto estimate =
          factored_split_encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_);
      ASSERT_TRUE(estimate && *estimate);
      const auto size = static_cast<double>(expect_round_trip(chunk).size());
      EXPECT_NEAR(static_cast<double>((*estimate)->payload_bytes), size, size * 0.006)
          << "rows of " << row << ", signs " << with_signs;
    }
  }
}

TEST_F(FactoredSplit, RefusesIncompressibleChunks) {
  const TestChunk noise{.dtype = DType::f32, .data = make_chunk(Pattern::random, DType::f32, 70000, 1), .base = {}};
  EXPECT_FALSE(encode_test_chunk(factored_split_encoder(), noise, scratch_));
  const TestChunk few{.dtype = DType::f32, .data = make_chunk(Pattern::trained_like, DType::f32, 300, 1), .base = {}};
  EXPECT_FALSE(encode_test_chunk(factored_split_encoder(), few, scratch_));
}

// The zero bits that factored_split leaves out: a value must have room for the rest.
unsigned left_out_of(DType dtype, unsigned zero_bits) {
  while (!FactoredFloats{.floats = {.dtype = dtype, .zero_bits = zero_bits}}.can_be()) --zero_bits;
  return zero_bits;
}

TEST_F(FactoredSplit, StoresNothingForLowBitsThatAreZero) {
  for (const DType dtype : kFactoredDTypes) {
    for (const bool with_signs : {false, true}) {
      const TestChunk whole = moments({.dtype = dtype, .with_signs = with_signs});
      const double whole_size = static_cast<double>(expect_round_trip(whole).size());
      for (unsigned zero_bits = 1; zero_bits <= mantissa_bits_of(dtype); ++zero_bits) {
        SCOPED_TRACE(std::to_string(zero_bits) + " bits of " + std::string(dtype_name(dtype)));
        TestChunk chunk = whole;
        for (std::size_t i = 0; i < chunk.elements(); ++i) {
          std::byte* const at = chunk.data.data() + i * element_size(dtype);
          std::uint32_t element = 0;
          std::memcpy(&element, at, element_size(dtype));
          element = element >> zero_bits << zero_bits;
          if (i == 40000) element |= 1;
          // A sign that the sample misses.
          if (i == 50000 && dtype == DType::f32) element |= 0x80000000;
          std::memcpy(at, &element, element_size(dtype));
        }
        const unsigned left_out = left_out_of(dtype, zero_bits);
        const auto payload = expect_round_trip(chunk);
        if (left_out == 0) continue;
        EXPECT_EQ(payload.at(0), static_cast<std::byte>(kShortFlag | kShortExceptions | left_out));
        // If values have no room above, a single negative element costs each element a sign bit.
        const double signs = with_signs || zero_bits < 8 || zero_bits > 15 ? 0 : 1;
        EXPECT_LE(static_cast<double>(payload.size()),
                  whole_size * 1.01 - static_cast<double>(chunk.elements()) * (left_out - signs) / 8 + 100);
        const TestSurroundings surroundings(chunk);
        const auto estimate =
            factored_split_encoder().analyze(chunk.data, surroundings.context(), chunk.elements(), scratch_);
        ASSERT_TRUE(estimate && *estimate);
        const auto size = static_cast<double>(payload.size());
        EXPECT_NEAR(static_cast<double>((*estimate)->payload_bytes), size, size / 8);
      }
    }
  }
}

TEST_F(FactoredSplit, DoesNotShortenIfManyElementsHaveLowBits) {
  TestChunk chunk = moments({});
  for (std::size_t i = 0; i < chunk.elements(); ++i) {
    const bool is_exception = i >= 30000 && i < 30300;
    chunk.data[4 * i] = is_exception ? std::byte{1} : std::byte{0};
  }
  const auto payload = expect_round_trip(chunk);
  EXPECT_LT(std::to_integer<unsigned>(payload.at(0)), kShortFlag);
}

TEST_F(FactoredSplit, SkipsRowsOfExceptionsWithLowBitsOnly) {
  TestChunk chunk = moments({.elements = 64 * 512});
  for (std::size_t i = 0; i < chunk.elements(); ++i) {
    chunk.data[4 * i] = chunk.data[4 * i + 1] = std::byte{0};
    if (i / 512 == 20) std::memset(chunk.data.data() + 4 * i, 0, 4);
  }
  chunk.data[4 * (20 * 512 + 3)] = std::byte{7};
  const auto payload = expect_round_trip(chunk);
  EXPECT_EQ(payload.at(0), static_cast<std::byte>(kShortFlag | kShortExceptions | 16));
}

TEST_F(FactoredSplit, ReadsExceptionsIfNothingElseIsCoded) {
  const TestChunk chunk{.dtype = DType::f32, .data = std::vector<std::byte>(256), .base = {}};
  const auto decoded = decode_test_chunk(
      factored_split_decoder(),
      hex_bytes("D4 01 00 00 00  03 00 00 00 07 00 00 00    00 04 00 00 00 02 00 00 00 00 00 00 00"), chunk, scratch_);
  ASSERT_TRUE(decoded) << decoded.error().message();
  auto expected = chunk.data;
  expected[12] = std::byte{7};
  EXPECT_EQ(*decoded, expected);
}

class DamagedFactoredSplit : public FactoredSplit {
 protected:
  DamagedFactoredSplit()
      : chunk_(moments({.row_elements = 67, .first_column = 5, .elements = 1500})),
        payload_(encode_test_chunk(factored_split_encoder(), chunk_, scratch_).value_or(std::vector<std::byte>())) {}

  // The payload with other bytes from `at` on.
  [[nodiscard]] std::vector<std::byte> with(std::size_t at, std::string_view bytes) const {
    auto changed = payload_;
    std::ranges::copy(hex_bytes(bytes), changed.begin() + static_cast<std::ptrdiff_t>(at));
    return changed;
  }

  TestChunk chunk_;
  std::vector<std::byte> payload_;
};

TEST_F(DamagedFactoredSplit, IsRefusedAtEveryTruncation) {
  ASSERT_GT(payload_.size(), 1000U);
  ASSERT_EQ(payload_[0] & std::byte{kFactoredColumns4}, std::byte{kFactoredColumns4});
  for (std::size_t size = 0; size < payload_.size(); ++size) {
    const auto decoded =
        decode_test_chunk(factored_split_decoder(), ConstByteSpan(payload_).first(size), chunk_, scratch_);
    ASSERT_FALSE(decoded) << size;
    ASSERT_TRUE(decoded.error().kind() == ErrorKind::truncated || decoded.error().kind() == ErrorKind::corrupt);
  }
  auto longer = payload_;
  longer.push_back({});
  expect_refused(longer, chunk_, "");
}

TEST_F(DamagedFactoredSplit, SurvivesEveryChangedByte) {
  at_every_level([&] {
    auto damaged = payload_;
    for (std::byte& byte : damaged) {
      const std::byte good = byte;
      for (const std::byte flip : {std::byte{0x01}, std::byte{0x80}, std::byte{0xFF}}) {
        byte = good ^ flip;
        const auto decoded = decode_test_chunk(factored_split_decoder(), damaged, chunk_, scratch_);
        ASSERT_TRUE(decoded || decoded.error().kind() == ErrorKind::truncated ||
                    decoded.error().kind() == ErrorKind::corrupt);
      }
      byte = good;
    }
  });
}

TEST_F(DamagedFactoredSplit, IsRefusedWithInvalidFields) {
  expect_refused(with(0, "10"), chunk_, "flags are 16");
  expect_refused(with(0, "0C"), chunk_, "flags are 12");
  expect_refused(with(4, "3F 00 00 00"), chunk_, "a row has 63 elements");
  expect_refused(with(4, "01 00 04 00"), chunk_, "a row has 262145 elements");
  expect_refused(with(8, "43 00 00 00"), chunk_, "first column is 67");
  const std::size_t rows = factored_rows(1500, 67, 5);
  ASSERT_EQ(rows, 23U);
  const bool has_classes = (payload_[0] & std::byte{kFactoredRowClasses}) != std::byte{0};
  const std::size_t columns_end = 12 + rows + (has_classes ? 6 : 0) + 34;
  expect_refused(with(columns_end - 1, "10"), chunk_, "after the scale of the last column");

  const TestChunk zeros{.dtype = DType::f32, .data = std::vector<std::byte>(256), .base = {}};
  for (const unsigned zero_bits : {5U, 6U, 7U, 13U, 14U, 15U, 21U, 22U, 23U}) {
    auto refused = hex_bytes("80 00 04 00 00 00 02 00 00 00 00 00 00 00");
    refused[0] |= static_cast<std::byte>(zero_bits);
    expect_refused(refused, zeros, "expected a number that leaves enough mantissa bits");
  }
  expect_refused(hex_bytes("94 00 04 00 00 00 02 00 00 00 00 00 00 00 00"), zeros, "expected 14 bytes, found 15");
  expect_refused(hex_bytes("00 04 00 00 00 02 00 00 00 00 00 00 00 00"), zeros, "expected 13 bytes, found 14");
  expect_refused(hex_bytes("02 04 00 00 00 02 00 00 00 00 00 00 00 04"), zeros, "after the class of the last row");
}

TEST_F(FactoredSplit, AcceptsFloatsOfTwoOrFourBytesWithoutInputsOnly) {
  for (const DType dtype : kAllDTypes) {
    const bool taken = dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32;
    EXPECT_EQ(factored_split_decoder().accepts(dtype, {}), taken) << dtype_name(dtype);
    const Input base{.kind = InputKind::base, .dtype = dtype, .bytes = {}};
    EXPECT_FALSE(factored_split_decoder().accepts(dtype, {&base, 1}));
  }
}

}  // namespace
}  // namespace bitsnap::codec
