// Tests of ordinal_delta: the worked examples of spec.md, the choice of the form, floats that move like weights, and
// invalid payloads.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "codec/ordinal_delta/ordinal_delta_testing.hpp"
#include "tensor/ordinal.hpp"

namespace bitsnap::codec {
namespace {

TEST_F(OrdinalDelta, ReadsTheSparseExampleOfItsSpec) {
  const TestChunk chunk = four_elements();
  at_every_level([&] {
    const auto decoded = decode_test_chunk(ordinal_delta_decoder(),
                                           hex_bytes("01 7F 01    02 00 00 00 01 00 00 00    AA 02"), chunk, scratch_);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, chunk.data);
  });
}

TEST_F(OrdinalDelta, ReadsTheDenseExampleOfItsSpec) {
  const std::string text = "00 7F 20 00 00 00 00 00" + values_of_the_example();
  const TestChunk chunk{
      .dtype = DType::bf16, .data = elements_of(DType::bf16, {0x3F7D}), .base = elements_of(DType::bf16, {0x3F80})};
  at_every_level([&] {
    const auto decoded = decode_test_chunk(ordinal_delta_decoder(), hex_bytes(text), chunk, scratch_);
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(*decoded, chunk.data);
  });
}

TEST_F(OrdinalDelta, MeasuresDeltasLikeOrdinals) {
  std::mt19937_64 random(3);
  for (const DType dtype : kDeltaDTypes) {
    DeltaGeometry geometry = geometry_of(dtype);
    const std::size_t w = geometry.element_bytes;
    const std::uint64_t mask = (std::uint64_t{1} << (8 * w)) - 1;
    constexpr std::size_t kElements = 5003;
    std::vector<std::byte> data(kElements * w);
    std::vector<std::byte> base(kElements * w);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random());
    for (std::byte& byte : base) byte = static_cast<std::byte>(random());
    const auto bytes = [](std::vector<std::byte>& of) { return reinterpret_cast<std::uint8_t*>(of.data()); };
    std::vector<std::uint16_t> values(kElements);
    std::vector<std::byte> low(kElements * 2);
    for (std::size_t low_bytes = 0; low_bytes <= (w > 2 ? 2U : 0U); ++low_bytes) {
      geometry.low_bytes = low_bytes;
      for (const CpuLevel level : kCpuLevels) {
        if (!has_cpu_level(level)) continue;
        kernels<OrdinalDeltaKernels>(level).measure_deltas(bytes(data), bytes(base), kElements, geometry, values.data(),
                                                           bytes(low));
        for (std::size_t i = 0; i < kElements; ++i) {
          const auto ordinal = [&](const std::vector<std::byte>& of) -> std::uint64_t {
            const std::uint32_t element = element_of(of, i, w);
            const auto kind = tensor::OrdinalKind::floating;
            if (w == 1) return tensor::to_ordinal(static_cast<std::uint8_t>(element), kind);
            if (w == 2) return tensor::to_ordinal(static_cast<std::uint16_t>(element), kind);
            return tensor::to_ordinal(element, kind);
          };
          const std::uint64_t delta = (ordinal(data) - ordinal(base)) & mask;
          const bool negative = delta >> (8 * w - 1) != 0;
          const std::uint64_t zigzag = (negative ? 2 * (mask + 1 - delta) - 1 : 2 * delta) & mask;
          ASSERT_EQ(values[i], std::min<std::uint64_t>(zigzag >> (8 * low_bytes), kMostDeltas)) << dtype_name(dtype);
          for (std::size_t k = 0; k < low_bytes; ++k) {
            ASSERT_EQ(std::to_integer<unsigned>(low[i * low_bytes + k]), zigzag >> (8 * k) & 255);
          }
        }
      }
    }
  }
}

TEST_F(OrdinalDelta, MeasuresDirectlyFromTheTop) {
  DeltaGeometry geometry = geometry_of(DType::bf16);
  geometry.top = 127;
  geometry.first_direct = 2;
  // The exponents 127, 126, and 125 or less: the contexts 0, 1, and 2 or more.
  const auto base = elements_of(DType::bf16, {0x3F80, 0x3F00, 0x3E80, 0x3E80, 0x3E80, 0xBE80, 0x0000});
  const auto data = elements_of(DType::bf16, {0x3F81, 0x3F01, 0x3FFF, 0xBFFF, 0x0000, 0x4000, 0x8000});
  // The largest magnitude of the top exponent gives 1, or 0 if it is negative; one above the top wraps around.
  const std::vector<std::uint16_t> expected{2, 2, 1, 0, 0x7FFF, 0xFFFF, 0x7FFE};
  const auto bytes = [](const std::vector<std::byte>& of) { return reinterpret_cast<const std::uint8_t*>(of.data()); };
  std::vector<std::uint16_t> values(7);
  OrdinalDeltaKernels::kScalar.measure_deltas(bytes(data), bytes(base), 7, geometry, values.data(), nullptr);
  EXPECT_EQ(values, expected);
  std::vector<std::byte> again(14);
  OrdinalDeltaKernels::kScalar.move_deltas(bytes(base), values.data(), nullptr, 7, geometry,
                                           reinterpret_cast<std::uint8_t*>(again.data()));
  EXPECT_EQ(again, data);

  // If context 0 is direct, so are the elements above the top, which have context 0.
  geometry.first_direct = 0;
  for (const CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    const auto above = elements_of(DType::bf16, {0x4000, 0x7F80});
    const auto same = elements_of(DType::bf16, {0x3FFF, 0x3FFF});
    kernels<OrdinalDeltaKernels>(level).measure_deltas(bytes(same), bytes(above), 2, geometry, values.data(), nullptr);
    EXPECT_EQ(values[0], 1U);
    EXPECT_EQ(values[1], 1U);
  }
}

TEST_F(OrdinalDelta, RoundTripsFloatsThatMoveLikeWeights) {
  for (const DType dtype : kDeltaDTypes) {
    for (const std::size_t elements : {1000U, 2047U, 2048U, 2049U, 20000U, 70001U}) {
      for (const double delta : {0.02, 0.5, 5.0, 3000.0}) {
        for (const unsigned per_change : {1U, 3U, 50U, 1000U}) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + std::to_string(elements) + " elements, deltas of " +
                       std::to_string(delta) + ", one in " + std::to_string(per_change));
          const TestChunk chunk = moved_chunk(dtype, elements, delta, per_change, 7);
          (void)round_trip(ordinal_delta_encoder(), chunk, scratch_);
        }
      }
    }
  }
}

TEST_F(OrdinalDelta, ChoosesTheSmallerForm) {
  const auto form_of = [&](double delta, unsigned per_change) {
    return static_cast<OrdinalDeltaForm>(
        expect_round_trip(moved_chunk(DType::bf16, 262144, delta, per_change, 1)).at(0));
  };
  EXPECT_EQ(form_of(1.0, 1), OrdinalDeltaForm::dense);
  EXPECT_EQ(form_of(1.0, 3), OrdinalDeltaForm::dense);
  EXPECT_EQ(form_of(1.0, 200), OrdinalDeltaForm::sparse);
  EXPECT_EQ(form_of(1.0, 100000), OrdinalDeltaForm::sparse);
}

TEST_F(OrdinalDelta, ChoosesTheLowBytesOfAnF32ByTheSizeOfTheDeltas) {
  const auto low_bytes_of = [&](double delta) {
    const auto payload = expect_round_trip(moved_chunk(DType::f32, 262144, delta, 1, 2));
    EXPECT_EQ(payload.at(0), static_cast<std::byte>(OrdinalDeltaForm::dense));
    return std::to_integer<unsigned>(payload.at(3));
  };
  EXPECT_EQ(low_bytes_of(2.0), 0U);
  EXPECT_EQ(low_bytes_of(3000.0), 1U);
  EXPECT_EQ(low_bytes_of(4.0e6), 2U);
}

TEST_F(OrdinalDelta, StoresElementsThatMovedFar) {
  TestChunk chunk = moved_chunk(DType::f32, 70000, 3000.0, 1, 4);
  for (const std::size_t i : {0U, 2047U, 2048U, 69999U})
    set_element(chunk.data, i, 4, 0x80000000U + static_cast<std::uint32_t>(i));
  const auto payload = expect_round_trip(chunk);
  ASSERT_EQ(payload.at(0), static_cast<std::byte>(OrdinalDeltaForm::dense));
  EXPECT_GE(load_le<std::uint32_t>(payload.data() + 4), 4U);
  // One far element too many or too few.
  for (const std::uint32_t change : {1U, ~0U}) {
    auto damaged = payload;
    store_le(damaged.data() + 4, load_le<std::uint32_t>(payload.data() + 4) + change);
    EXPECT_FALSE(decode_test_chunk(ordinal_delta_decoder(), damaged, chunk, scratch_));
  }
}

TEST_F(OrdinalDelta, KeepsEveryBitOfZerosInfinitiesAndNaNs) {
  for (const DType dtype : kDeltaDTypes) {
    const std::size_t w = element_size(dtype);
    TestChunk chunk = moved_chunk(dtype, 20000, 1.0, 4, 5);
    const DeltaGeometry geometry = geometry_of(dtype);
    const std::uint32_t infinity = std::uint32_t{geometry.exponent_mask} << geometry.mantissa_bits;
    const std::uint32_t sign = std::uint32_t{1} << (8 * w - 1);
    const std::uint32_t special[] = {0, sign,     infinity,     infinity | sign, infinity | 1, infinity | sign | 1,
                                     1, sign | 1, infinity - 1, sign - 1,        2 * sign - 1};
    for (std::size_t i = 0; i < 11 * 11; ++i) {
      set_element(chunk.data, 50 * i, w, special[i / 11]);
      set_element(chunk.base, 50 * i, w, special[i % 11]);
    }
    SCOPED_TRACE(dtype_name(dtype));
    static_cast<void>(expect_round_trip(chunk));
  }
}

TEST_F(OrdinalDelta, TakesAFractionOfABitIfHardlyAnythingChanged) {
  const TestChunk chunk = moved_chunk(DType::bf16, 262144, 1.0, 200, 6);
  const auto payload = expect_round_trip(chunk);
  std::size_t changed = 0;
  for (std::size_t i = 0; i < 262144; ++i)
    changed += element_of(chunk.data, i, 2) != element_of(chunk.base, i, 2) ? 1U : 0U;
  EXPECT_LT(payload.size() * 8, changed * 16) << "where it is, its sign and how far";
}

// With fewer low bytes than two, direct measures of F32 would all be far.
TEST_F(OrdinalDelta, MeasuresAnF32DirectlyWithTwoLowBytesOnly) {
  std::mt19937_64 random(9);
  for (const std::uint32_t most : {1'000'000U, 5'000'000U, 7'000'000U, 50'000'000U}) {
    // Relative changes that do not depend on the exponent, as in moments.
    TestChunk chunk = moved_chunk(DType::f32, 262144, 1.0, 1, 9);
    for (std::size_t i = 0; i < 262144; ++i) {
      const std::uint32_t delta = static_cast<std::uint32_t>(random()) % most;
      const std::uint32_t base = element_of(chunk.base, i, 4);
      set_element(chunk.data, i, 4, random() % 2 == 0 ? base + delta : base - delta);
    }
    const auto payload = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
    ASSERT_TRUE(payload) << "up to " << most << " ULPs";
    ASSERT_EQ((*payload)[0], static_cast<std::byte>(OrdinalDeltaForm::dense));
    const bool is_direct = std::to_integer<unsigned>((*payload)[2]) < kNoDirect;
    EXPECT_TRUE(!is_direct || std::to_integer<unsigned>((*payload)[3]) == 2) << "up to " << most << " ULPs";
    EXPECT_EQ(load_le<std::uint32_t>(payload->data() + 4), 0U) << "no element moved far";
  }
}

TEST_F(OrdinalDelta, EstimatesTheSizeFromASample) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const double delta : {0.5, 30.0, 3.0e4, 1.0e5, 4.0e5, 4.0e6}) {
      for (const unsigned per_change : {1U, 2U, 100U}) {
        const TestChunk chunk = moved_chunk(dtype, 262144, delta, per_change, 8);
        const std::size_t sample_bytes = 16384 * element_size(dtype);
        const Input base{
            .kind = InputKind::base, .dtype = dtype, .bytes = ConstByteSpan(chunk.base).first(sample_bytes)};
        const EncodeContext context{{.dtype = dtype, .elements = 16384, .inputs = {&base, 1}}};
        const auto estimate =
            ordinal_delta_encoder().analyze(ConstByteSpan(chunk.data).first(sample_bytes), context, 262144, scratch_);
        ASSERT_TRUE(estimate);
        const auto payload = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
        const auto size = static_cast<double>(payload ? payload->size() : chunk.data.size());
        const double estimated = static_cast<double>(*estimate ? (*estimate)->payload_bytes : chunk.data.size());
        EXPECT_NEAR(estimated, size, size / 4 + 100)
            << dtype_name(dtype) << ", deltas of " << delta << ", one in " << per_change;
      }
    }
  }
}

// A sample of the first columns of each row alone would find that the first of these matrices hardly moved.
TEST_F(OrdinalDelta, TakesTheSameForAnyOrderOfAMatrixsColumns) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const std::size_t w = element_size(dtype);
    for (const std::size_t columns : {1024U, 4096U}) {
      const auto size_with = [&](std::size_t factor) {
        TestChunk chunk = moved_chunk(dtype, 262144, 0.5, 1, 10);
        const TestChunk other = moved_chunk(dtype, 262144, 40.0, 1, 11);
        for (std::size_t i = 0; i < 262144; ++i) {
          if (i % columns * factor % columns < 128) continue;
          set_element(chunk.data, i, w, element_of(other.data, i, w));
          set_element(chunk.base, i, w, element_of(other.base, i, w));
        }
        const auto payload = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
        return payload ? payload->size() : chunk.data.size();
      };
      const std::size_t shuffled = size_with(389);
      EXPECT_LE(size_with(1), shuffled + shuffled / 50) << dtype_name(dtype) << ", " << columns << " columns";
    }
  }
}

TEST_F(OrdinalDelta, KeepsItsContextsIfSomeElementsAreInfinite) {
  for (const DType dtype : kDeltaDTypes) {
    const DeltaGeometry geometry = geometry_of(dtype);
    const std::size_t w = geometry.element_bytes;
    const TestChunk chunk = moved_chunk(dtype, 70000, 0.5, 1, 12);
    const auto payload = encode_test_chunk(ordinal_delta_encoder(), chunk, scratch_);
    ASSERT_TRUE(payload);
    TestChunk with = chunk;
    for (std::size_t i = 0; i < 70000; i += 100) {
      const std::uint32_t infinity = std::uint32_t{geometry.exponent_mask} << geometry.mantissa_bits;
      set_element(with.data, i, w, infinity);
      set_element(with.base, i, w, infinity);
    }
    const auto of_with = expect_round_trip(with);
    ASSERT_GT(of_with.size(), 1U);
    // In F8_E4M3, numbers have the largest exponent.
    const auto top = dtype == DType::f8_e4m3 ? std::byte{15} : (*payload)[1];
    EXPECT_EQ(of_with[1], top) << dtype_name(dtype);
  }
}

TEST_F(OrdinalDelta, RejectsInvalidDenseFields) {
  const TestChunk chunk = four_elements();
  expect_refused("03", chunk, "form is 3");
  expect_refused("00 7F 21 00 00 00 00 00", chunk, "first direct context is 33");
  expect_refused("00 7F 20 01 00 00 00 00", chunk, "expected at most 0 for BF16");
  expect_refused("00 7F 20 00 01 00 00 00 00 00 00 00", chunk, "1 far elements, expected none for BF16");
  const TestChunk wide{.dtype = DType::f32, .data = std::vector<std::byte>(8), .base = std::vector<std::byte>(8)};
  expect_refused("00 7F 20 03 00 00 00 00", wide, "expected at most 2 for F32");
  expect_refused("00 7F 20 02 00 00 00 00 00 00 00", wide, "low bytes of the elements", ErrorKind::truncated);
  expect_refused("00 7F 20 00 02 00 00 00 00 00 00 00", wide, "far elements", ErrorKind::truncated);
}

TEST_F(OrdinalDelta, RejectsInvalidLists) {
  const TestChunk chunk = four_elements();
  expect_refused("01 7F 00", chunk, "0 classes");
  expect_refused("01 7F 09", chunk, "9 classes");
  expect_refused("01 7F 02 00", chunk, "begins with context 0");
  expect_refused("01 7F 02 20", chunk, "begins with context 32");
  expect_refused("01 7F 03 05 05", chunk, "class 2 begins with context 5");
  expect_refused("01 7F 01    05 00 00 00 00 00 00 00", chunk, "list has 5 changed and");
  expect_refused("01 7F 01    01 00 00 00 02 00 00 00", chunk, "2 farther elements");
  expect_refused("01 7F 01    02 00 00 20 01 00 00 00    AA 02", chunk, "reserved bits of a list are set");
  expect_refused("01 7F 01    02 00 00 00 01 00 00 01    AA 02", chunk, "reserved bits of a list are set");
  expect_refused("01 7F 01    02 00 90 00 01 00 00 00    AA 02", chunk, "parameters");  // g = 18
  expect_refused("01 7F 01    02 00 00 12 01 00 00 00    AA 02", chunk, "parameters");  // h = 18
  expect_refused("01 7F 01    02 00 00 00 01 00 80 00    AA 02", chunk, "parameters");  // k = 16
  expect_refused("01 7F 02 01    03 00 00 00 00 00 00 00    02 00 00 00 00 00 00 00    FF FF", chunk,
                 "5 changed elements, expected at most 4");
  expect_refused("01 7F 01    02 00 00 00 01 00 00 00    A0 02", chunk, "gap leads to element");
  expect_refused("01 7F 01    02 00 00 00 01 00 00 00    2A 02", chunk, "gap leads to changed element");
  expect_refused("01 7F 01    02 00 00 00 01 00 00 00    AA 06", chunk, "bits after");
  expect_refused("01 7F 01    02 00 00 00 01 00 00 00    AA 02 00", chunk, "bits after");
  expect_refused("01 7F 01    02 00 00 00 01 00 00 00    AA", chunk, "more bits", ErrorKind::truncated);
  expect_refused("01 7F 01    02 00 00 00 00 00 00 00    08", chunk, "more bits", ErrorKind::truncated);
  // Class 1, whose contexts begin with 1, has no elements.
  expect_refused("01 7F 02 01    00 00 00 00 00 00 00 00    01 00 00 00 00 00 00 00    01", chunk,
                 "beyond the last element of class 1");
}

TEST_F(OrdinalDelta, AcceptsFloatsOfUpToFourBytesWithABaseOnly) {
  for (const DType dtype : kAllDTypes) {
    const bool taken = std::ranges::find(kDeltaDTypes, dtype) != std::end(kDeltaDTypes);
    const Input base{.kind = InputKind::base, .dtype = dtype, .bytes = {}};
    const Input peer{.kind = InputKind::peer, .dtype = dtype, .bytes = {}};
    EXPECT_EQ(ordinal_delta_decoder().accepts(dtype, {&base, 1}), taken) << dtype_name(dtype);
    EXPECT_FALSE(ordinal_delta_decoder().accepts(dtype, {&peer, 1}));
    EXPECT_FALSE(ordinal_delta_decoder().accepts(dtype, {}));
  }
}

}  // namespace
}  // namespace bitsnap::codec
