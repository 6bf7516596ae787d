// Counts of elements and of their changes, with expected values worked out by hand.
#include "analyze/element_counts.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "analyze/count_findings.hpp"

namespace bitsnap::analyze {
namespace {

template <typename Bits>
Findings found(DType dtype, const std::vector<Bits>& elements) {
  Scratch scratch;
  const auto counts = count_elements(dtype, std::as_bytes(std::span(elements)), scratch);
  EXPECT_TRUE(counts.has_value());
  Findings findings;
  set_findings(*counts, dtype, elements.size(), findings);
  return findings;
}

template <typename Bits>
ChangeFindings changed(DType dtype, const std::vector<Bits>& elements, const std::vector<Bits>& base) {
  Scratch scratch;
  const auto counts = count_changes(dtype, std::as_bytes(std::span(elements)), std::as_bytes(std::span(base)), scratch);
  EXPECT_TRUE(counts.has_value());
  return make_findings(*counts, dtype, elements.size());
}

TEST(Entropy, MatchesKnownDistributions) {
  EXPECT_DOUBLE_EQ(entropy_of(std::vector<std::uint64_t>{5, 5, 5, 5}), 2.0);
  EXPECT_DOUBLE_EQ(entropy_of(std::vector<std::uint64_t>{2, 1, 0, 1}), 1.5);
  EXPECT_DOUBLE_EQ(entropy_of(std::vector<std::uint64_t>{1, 3}), 2.0 - 0.75 * std::log2(3.0));
  EXPECT_EQ(entropy_of(std::vector<std::uint64_t>{0, 9, 0}), 0.0);
  EXPECT_EQ(entropy_of(std::vector<std::uint64_t>{}), 0.0);
}

TEST(ElementCounts, GivePlanesSignAndExponentFromTheMostSignificantOn) {
  // Signs are even; exponents 127, 127, 128, 129; of the mantissas only the lowest bit is ever set.
  const Findings findings = found<std::uint16_t>(DType::bf16, {0x3F80, 0xBF81, 0x4000, 0xC081});
  EXPECT_DOUBLE_EQ(*findings.sign_entropy, 1.0);
  EXPECT_DOUBLE_EQ(*findings.exponent_entropy, 1.5);
  ASSERT_EQ(findings.plane_entropies.size(), 2U);
  EXPECT_DOUBLE_EQ(findings.plane_entropies[0], 2.0);  // 3F BF 40 C0
  EXPECT_DOUBLE_EQ(findings.plane_entropies[1], 1.5);  // 80 81 00 81
  ASSERT_EQ(findings.ones.size(), 16U);
  EXPECT_EQ(findings.ones[0], 0.5);
  EXPECT_EQ(findings.ones[1], 0.5);   // the highest bit of the exponent
  EXPECT_EQ(findings.ones[8], 0.75);  // the lowest one
  EXPECT_EQ(findings.ones[15], 0.5);
  EXPECT_EQ(findings.constant_bits, (std::vector<double>{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0}));
}

TEST(ElementCounts, IntegersHaveNeitherSignNorExponentEntropy) {
  const Findings findings = found<std::uint32_t>(DType::i32, {0, 1, 0, 0xFFFFFFFF});
  EXPECT_FALSE(findings.sign_entropy);
  EXPECT_FALSE(findings.exponent_entropy);
  EXPECT_EQ(findings.zeros, 0.5);
  EXPECT_EQ(findings.plane_entropies.size(), 4U);
}

TEST(ElementCounts, CountZerosNansAndInfinitiesByTheRulesOfTheDtype) {
  const auto expect = [](const Findings& findings, double zeros, std::uint64_t nans, std::uint64_t infinities) {
    EXPECT_EQ(findings.zeros, zeros);
    EXPECT_EQ(findings.nans, nans);
    EXPECT_EQ(findings.infinities, infinities);
  };
  expect(found<std::uint32_t>(DType::f32, {0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFC00000, 2}), 0.25,
         2, 2);
  expect(found<std::uint16_t>(DType::bf16, {0x8000, 0x7F80, 0x7F81, 0x7F7F}), 0.25, 1, 1);
  expect(found<std::uint16_t>(DType::f16, {0x8000, 0x7C00, 0x7C01, 0x7BFF}), 0.25, 1, 1);
  expect(found<std::uint64_t>(DType::f64, {0, 0x7FF0000000000000, 0xFFF0000000000001, 1}), 0.25, 1, 1);
  expect(found<std::uint8_t>(DType::f8_e5m2, {0x80, 0x7C, 0x7D, 0x01}), 0.25, 1, 1);
  // 448, the largest number of this dtype, and its two NaNs.
  expect(found<std::uint8_t>(DType::f8_e4m3, {0x00, 0x7E, 0x7F, 0xFF}), 0.25, 2, 0);
}

TEST(ChangeCounts, GroupUlpDistancesByPowersOfTwo) {
  const std::vector<std::uint16_t> base = {0x3F80, 0x3F80, 0x3F7F, 0x8000, 0x3F80, 0x3F80, 0x3F80, 0x3F80};
  // None twice; 1 over a carry of the exponent; 1 from -0 to +0; 2; 3; 4; 256.
  const std::vector<std::uint16_t> next = {0x3F80, 0x3F80, 0x3F80, 0x0000, 0x3F7E, 0x3F83, 0x3F84, 0x4080};
  const ChangeFindings findings = changed(DType::bf16, next, base);
  EXPECT_EQ(findings.distances, (std::vector<double>{0.25, 0.25, 0.25, 0.125, 0, 0, 0, 0, 0, 0.125}));
  EXPECT_EQ(findings.changed, 0.75);
  EXPECT_EQ(findings.sign_changed, 0.125);
}

TEST(ChangeCounts, CountUnchangedBits) {
  const std::vector<std::uint32_t> base = {0x3F800000, 0x3F800000, 0x3F800000, 0x3F800000};
  const std::vector<std::uint32_t> next = {0x3F800000, 0xBF800000, 0x3F800001, 0x3F800003};
  const ChangeFindings findings = changed(DType::f32, next, base);
  ASSERT_EQ(findings.same_bits.size(), 32U);
  EXPECT_EQ(findings.same_bits[0], 0.75);
  EXPECT_EQ(findings.same_bits[1], 1.0);
  EXPECT_EQ(findings.same_bits[30], 0.75);
  EXPECT_EQ(findings.same_bits[31], 0.5);
  EXPECT_EQ(findings.xor_entropies[1], 0.0);
  EXPECT_DOUBLE_EQ(findings.xor_entropies[3], 1.5);  // 00 00 01 03
}

TEST(ChangeCounts, SmallDifferencesAreSymbolsAndLargeOnesAreGroupedByLeadingBits) {
  std::vector<std::uint32_t> base(1024, 1'000'000);
  std::vector<std::uint32_t> next(1024);
  for (std::uint32_t i = 0; i < 1024; ++i) next[i] = base[i] + i % 4;
  EXPECT_DOUBLE_EQ(*changed(DType::i32, next, base).delta_entropy, 2.0);
  for (std::uint32_t i = 0; i < 1024; ++i) next[i] = i % 2 == 0 ? base[i] + 5 : base[i] - 5;
  EXPECT_DOUBLE_EQ(*changed(DType::i32, next, base).delta_entropy, 1.0);
  // All of 1024 to 2047 occur once: 10 bits. Then only 1024 occurs: its group has 128 values, which counts as 7 bits.
  for (std::uint32_t i = 0; i < 1024; ++i) next[i] = base[i] + 1024 + i;
  EXPECT_DOUBLE_EQ(*changed(DType::i32, next, base).delta_entropy, 10.0);
  for (std::uint32_t i = 0; i < 1024; ++i) next[i] = base[i] + 1024;
  EXPECT_DOUBLE_EQ(*changed(DType::i32, next, base).delta_entropy, 7.0);
  EXPECT_FALSE(changed(DType::i32, next, base).delta_entropy_by_exponent);
}

TEST(ChangeCounts, DifferencesOfTheLargestIntegersWrapAround) {
  const std::vector<std::uint64_t> base = {0x7FFFFFFFFFFFFFFF, 0x8000000000000000};
  const std::vector<std::uint64_t> next = {0x8000000000000000, 0x7FFFFFFFFFFFFFFF};
  const ChangeFindings findings = changed(DType::i64, next, base);
  EXPECT_DOUBLE_EQ(*findings.delta_entropy, 1.0);  // -1 and 1 of 2^64
  EXPECT_EQ(findings.distances.size(), 65U);       // from the least to the greatest number
  EXPECT_EQ(findings.distances[64], 1.0);
}

TEST(ChangeCounts, TheExponentOfTheBaseLowersTheEntropyOfDeltas) {
  std::vector<std::uint32_t> base(1024);
  std::vector<std::uint32_t> next(1024);
  for (std::size_t i = 0; i < base.size(); ++i) {
    base[i] = i % 2 == 0 ? 0x3F800000 : 0x40000000;
    next[i] = base[i] + (i % 2 == 0 ? 3 : 1);
  }
  const ChangeFindings findings = changed(DType::f32, next, base);
  EXPECT_DOUBLE_EQ(*findings.delta_entropy, 1.0);
  EXPECT_EQ(*findings.delta_entropy_by_exponent, 0.0);
}

TEST(ChangeCounts, TheContextIsTheExponentOfTheBase) {
  // Changed elements have another exponent than their base. With that exponent as the context, the entropy would be 0.
  const std::vector<std::uint32_t> base(1024, 0x3FFFFFFF);
  std::vector<std::uint32_t> next = base;
  for (std::size_t i = 0; i < next.size(); i += 2) ++next[i];
  EXPECT_DOUBLE_EQ(*changed(DType::f32, next, base).delta_entropy_by_exponent, 1.0);
}

TEST(ChangeCounts, DtypesWithoutOrderHaveNoDistances) {
  const std::vector<std::uint64_t> base = {1, 2};
  const ChangeFindings findings = changed(DType::c64, std::vector<std::uint64_t>{1, 3}, base);
  EXPECT_EQ(findings.changed, 0.5);
  EXPECT_TRUE(findings.distances.empty());
  EXPECT_FALSE(findings.delta_entropy);
}

TEST(ElementCounts, CountsOfPartsAddUpToThoseOfTheWhole) {
  std::vector<std::uint32_t> all(3000);
  std::vector<std::uint32_t> base(3000);
  for (std::size_t i = 0; i < all.size(); ++i) {
    base[i] = 0x3F000000 + static_cast<std::uint32_t>(i * 2654435761U >> 8);
    all[i] = base[i] + static_cast<std::uint32_t>(i % 97);
  }
  const auto bytes = std::as_bytes(std::span(all));
  const auto base_bytes = std::as_bytes(std::span(base));
  Scratch scratch;
  ElementCounts elements;
  ChangeCounts changes;
  for (const auto& [first, size] : {std::pair<std::size_t, std::size_t>{0, 4000}, {4000, 8000}}) {
    elements.add(*count_elements(DType::f32, bytes.subspan(first, size), scratch));
    changes.add(*count_changes(DType::f32, bytes.subspan(first, size), base_bytes.subspan(first, size), scratch));
  }
  const auto whole = *count_elements(DType::f32, bytes, scratch);
  const auto whole_changes = *count_changes(DType::f32, bytes, base_bytes, scratch);
  EXPECT_EQ(elements.planes, whole.planes);
  EXPECT_EQ(elements.exponents, whole.exponents);
  EXPECT_EQ(changes.differences, whole_changes.differences);
  EXPECT_EQ(changes.distances, whole_changes.distances);
  EXPECT_EQ(changes.low_bits, whole_changes.low_bits);
}

}  // namespace
}  // namespace bitsnap::analyze
