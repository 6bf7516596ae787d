// Tests of error tallies against sums taken one by one.
#include <bitsnap/error_tally.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include <bitsnap/tensor.hpp>

#include "quantize/quantize_blocks.hpp"
#include "quantize/quantize_testing.hpp"

namespace bitsnap::quantize {
namespace {

// A quantizer that replaces the elements by given ones.
template <typename Bits>
ErrorTally tally_between(DType dtype, std::vector<Bits> from, const std::vector<Bits>& to, std::size_t first = 0) {
  ErrorTally tally;
  const auto replace = [&](const Block& block) -> std::size_t {
    std::memcpy(block.elements, to.data() + first + block.first, sizeof(Bits) * block.count);
    return block.first == 0 ? 1 : 0;
  };
  quantize_blocks(dtype, std::as_writable_bytes(std::span(from)), replace, &tally);
  return tally;
}

template <typename Bits>
ErrorTally naive_tally(DType dtype, const std::vector<Bits>& from, const std::vector<Bits>& to) {
  ErrorTally tally{.elements = from.size(), .past_nearest = 1};
  for (std::size_t i = 0; i < from.size(); ++i) {
    const double x = value_of(dtype, from[i]);
    const double error = std::abs(value_of(dtype, to[i]) - x);
    if (from[i] != to[i]) ++tally.changed;
    if (!std::isfinite(x)) continue;
    ++tally.finite;
    tally.max_absolute = std::max(tally.max_absolute, error);
    tally.sum_square += error * error;
    if (x == 0) continue;
    ++tally.nonzero;
    tally.max_relative = std::max(tally.max_relative, error / std::abs(x));
    tally.sum_relative += error / std::abs(x);
  }
  return tally;
}

void expect_like(const ErrorTally& found, const ErrorTally& expected) {
  ErrorTally rest = found;
  EXPECT_NEAR(found.sum_square, expected.sum_square, 1e-11 * expected.sum_square);
  EXPECT_NEAR(found.sum_relative, expected.sum_relative, 1e-11 * expected.sum_relative);
  rest.sum_square = expected.sum_square;
  rest.sum_relative = expected.sum_relative;
  EXPECT_EQ(rest, expected) << "except for the sums, to the last bit: " << found.max_absolute << ", " << found.changed;
}

// Other numbers for the finite elements.
template <typename Bits>
std::vector<Bits> moved(const std::vector<Bits>& from, Bits infinity) {
  std::mt19937 random(3);
  std::vector<Bits> to = from;
  const auto magnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  for (Bits& element : to) {
    if ((element & magnitude) >= infinity) continue;
    const auto other = static_cast<Bits>(element ^ (random() & 0x1f));
    if ((other & magnitude) < infinity) element = other;
    if (random() % 16 == 0) element = 0;
  }
  return to;
}

template <typename Bits>
void expect_tallied(DType dtype, const std::vector<Bits>& from, Bits infinity) {
  const std::vector<Bits> to = moved(from, infinity);
  const ErrorTally expected = naive_tally(dtype, from, to);
  ErrorTally first;
  at_every_level_and_float_mode([&] {
    const ErrorTally tally = tally_between(dtype, from, to);
    if (first.elements == 0) first = tally;
    EXPECT_EQ(tally, first) << "differs between levels";
  });
  expect_like(first, expected);
}

TEST(ErrorTally, CountsChangesOfF32) { expect_tallied<std::uint32_t>(DType::f32, edge_floats(5001), 0x7f800000); }

TEST(ErrorTally, CountsChangesOfEveryBf16AndF16) {
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  expect_tallied<std::uint16_t>(DType::bf16, all, 0x7f80);
  expect_tallied<std::uint16_t>(DType::f16, all, 0x7c00);
}

TEST(ErrorTally, HasMeansAndMaximaInTheirUnits) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  const std::vector<std::uint32_t> from{bits(2), bits(-4), bits(0), bits(INFINITY), bits(8), 0x7fc00123};
  const std::vector<std::uint32_t> to{bits(3), bits(-4), bits(0.5F), bits(INFINITY), bits(6), 0x7fc00123};
  const ErrorTally tally = tally_between(DType::f32, from, to);
  EXPECT_EQ(tally.elements, 6U);
  EXPECT_EQ(tally.changed, 3U);
  EXPECT_EQ(tally.kept_exact(), 3U);
  EXPECT_EQ(tally.finite, 4U);
  EXPECT_EQ(tally.nonzero, 3U);
  EXPECT_EQ(tally.max_absolute, 2);
  EXPECT_EQ(tally.max_relative, 0.5);
  EXPECT_EQ(tally.mean_square(), (1 + 0.25 + 4) / 4);
  EXPECT_EQ(tally.mean_relative(), (0.5 + 0 + 0.25) / 3);
  EXPECT_EQ(ErrorTally{}.mean_square(), 0);
  EXPECT_EQ(ErrorTally{}.mean_relative(), 0);
}

TEST(ErrorTally, CountsAnElementThatLostItsSign) {
  const ErrorTally tally = tally_between<std::uint32_t>(DType::f32, {0x80000000}, {0});
  EXPECT_EQ(tally, (ErrorTally{.elements = 1, .changed = 1, .finite = 1, .past_nearest = 1}));
}

TEST(ErrorTally, OfATensorEqualsTheMergedTalliesOfItsChunks) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<std::uint32_t> from(2 * kChunkElements + 1000);
  for (std::uint32_t& element : from) element = std::bit_cast<std::uint32_t>(normal(random));
  const std::vector<std::uint32_t> to = moved(from, 0x7f800000U);
  ErrorTally parts;
  for (std::size_t first = 0; first < from.size(); first += kChunkElements) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(first + kChunkElements, from.size()));
    parts.merge(tally_between(DType::f32, std::vector<std::uint32_t>(begin, end), to, first));
  }
  parts.past_nearest = 1;
  EXPECT_EQ(tally_between(DType::f32, from, to), parts);
  expect_like(parts, naive_tally(DType::f32, from, to));
}

}  // namespace
}  // namespace bitsnap::quantize
