// Tests of the quantizer round_mantissa against a naive version in F64 and against its bounds.
#include "quantize/round_mantissa.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include <bitsnap/tensor.hpp>

#include "quantize/quantize_testing.hpp"

namespace bitsnap::quantize {
namespace {

struct Format {
  DType dtype;
  unsigned mantissa;
  unsigned bits;

  [[nodiscard]] std::uint32_t infinity() const { return (1U << (bits - 1)) - (1U << mantissa); }
  [[nodiscard]] std::uint32_t magnitude(std::uint32_t element) const { return element & ((1U << (bits - 1)) - 1); }
  [[nodiscard]] bool finite(std::uint32_t element) const { return magnitude(element) < infinity(); }
};

constexpr Format kF32{DType::f32, 23, 32};
constexpr Format kBf16{DType::bf16, 7, 16};
constexpr Format kF16{DType::f16, 10, 16};

// The neighbours with k bits of a finite number above 0, by their bits; both are the number itself if it has no more
// bits.
struct Neighbours {
  std::uint32_t below;
  std::uint32_t above;
  std::uint32_t nearest;  // may be infinity
};

Neighbours neighbours_of(const Format& format, std::uint32_t magnitude, unsigned kept) {
  const double x = value_of(format.dtype, magnitude);
  const double step = std::ldexp(1.0, std::ilogb(x) - static_cast<int>(kept));
  // Walks to the closest multiples of the spacing: adjacent bits are adjacent numbers.
  const auto is_multiple = [&](std::uint32_t bits) {
    if (bits == format.infinity()) return true;
    return std::fmod(value_of(format.dtype, bits), step) == 0;
  };
  const unsigned exponent = magnitude >> format.mantissa;
  const unsigned leading = exponent == 0 ? static_cast<unsigned>(std::bit_width(magnitude)) - 1 : format.mantissa;
  if (leading <= kept) return {magnitude, magnitude, magnitude};
  const unsigned dropped = leading - kept;
  const std::uint32_t below = magnitude >> dropped << dropped;
  const std::uint32_t above = is_multiple(magnitude) ? below : below + (1U << dropped);
  EXPECT_TRUE(is_multiple(below) && is_multiple(above));
  const double down = x - value_of(format.dtype, below);
  // The number after the largest finite one if the exponent had no limit.
  const double next = above == format.infinity() ? value_of(format.dtype, below) + step : value_of(format.dtype, above);
  const double up = next - x;
  const bool goes_up = up < down || (up == down && (below >> dropped & 1) != 0);
  return {below, above, goes_up ? above : below};
}

void expect_promises(const Format& format, unsigned kept, std::uint32_t x, std::uint32_t result) {
  const double before = value_of(format.dtype, x);
  const double after = value_of(format.dtype, result);
  if (!format.finite(x) || before == 0) {
    EXPECT_EQ(result, x);
    return;
  }
  const Neighbours around = neighbours_of(format, format.magnitude(x), kept);
  const bool overflows = around.nearest >= format.infinity();
  const std::uint32_t sign = x - format.magnitude(x);
  ASSERT_EQ(result, sign | (overflows ? around.below : around.nearest)) << std::hex << x << " keeps " << kept;
  ASSERT_TRUE(format.finite(result));
  ASSERT_NE(after, 0);
  ASSERT_LE(std::abs(after - before) / std::abs(before),
            std::ldexp(overflows ? 2.0 : 1.0, -1 - static_cast<int>(kept)));
}

template <typename Bits>
void expect_rounded(const Format& format, const std::vector<Bits>& elements) {
  for (unsigned kept = 0; kept < format.mantissa; ++kept) {
    const auto quantizer = RoundMantissa::of(format.dtype, kept);
    ASSERT_TRUE(quantizer);
    std::vector<Bits> first;
    at_every_level_and_float_mode([&] {
      const std::vector<Bits> rounded = quantized(*quantizer, format.dtype, elements);
      ASSERT_EQ(quantized(*quantizer, format.dtype, rounded), rounded) << "idempotent, kept " << kept;
      if (first.empty()) first = rounded;
      ASSERT_EQ(rounded, first) << "differs between levels, kept " << kept;
    });
    for (std::size_t i = 0; i < elements.size() && !testing::Test::HasFailure(); ++i) {
      expect_promises(format, kept, elements[i], first[i]);
    }
  }
}

std::vector<std::uint16_t> all_halves() {
  std::vector<std::uint16_t> all(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  return all;
}

TEST(RoundMantissa, RoundsEveryBf16ToEveryNumberOfBits) { expect_rounded(kBf16, all_halves()); }
TEST(RoundMantissa, RoundsEveryF16ToEveryNumberOfBits) { expect_rounded(kF16, all_halves()); }
TEST(RoundMantissa, RoundsF32OfEveryExponentToEveryNumberOfBits) { expect_rounded(kF32, edge_floats(20000)); }

TEST(RoundMantissa, MatchesTheExamplesOfTheSpecification) {
  const auto two = RoundMantissa::of(DType::f32, 2);
  const std::vector<std::uint32_t> from{0x3f8fffff, 0x3f900000, 0x3fb00000, 0x7f7fffff, 0xff7fffff, 0x00000001,
                                        0x0000000f, 0x80000000, 0x7f800001, 0xff800000, 0x007fffff};
  const std::vector<std::uint32_t> to{0x3f800000, 0x3f800000, 0x3fc00000, 0x7f600000, 0xff600000, 0x00000001,
                                      0x00000010, 0x80000000, 0x7f800001, 0xff800000, 0x00800000};
  ErrorTally tally;
  EXPECT_EQ(quantized(*two, DType::f32, from, tally), to);
  EXPECT_EQ(tally.past_nearest, 2U);
  EXPECT_EQ(tally.changed, 7U);
  EXPECT_EQ(tally.elements, from.size());

  const auto master = RoundMantissa::of_master(DType::bf16, 1);
  EXPECT_EQ(quantized<std::uint32_t>(*master, DType::f32, {0x3f807fff, 0x3f817fff}),
            (std::vector<std::uint32_t>{0x3f808000, 0x3f810000}));
}

// The weight of a master as in rounded_from, computed independently.
std::uint32_t weight_of(const Format& weights, std::uint32_t master) {
  const std::uint32_t sign = (master >> 31) << (weights.bits - 1);
  const double x = std::abs(value_of(DType::f32, master));
  if (std::isnan(x)) return 0xffff;
  // Bisection for the last number of the dtype that is not above x.
  std::uint32_t low = 0;
  std::uint32_t high = weights.infinity();
  if (std::isinf(x)) return sign | high;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (value_of(weights.dtype, middle) <= x ? low : high) = middle;
  }
  const double below = value_of(weights.dtype, low);
  const double above =
      high == weights.infinity() ? below + (below - value_of(weights.dtype, low - 1)) : value_of(weights.dtype, high);
  const bool goes_up = above - x < x - below || (above - x == x - below && low % 2 == 1);
  return sign | (goes_up ? high : low);
}

// Masters around all places where the weight changes, and elsewhere.
std::vector<std::uint32_t> masters_for(const Format& weights) {
  std::vector<std::uint32_t> masters = edge_floats(20000);
  for (std::uint32_t weight = 0; weight + 1 < weights.infinity(); weight += weight < 2100 ? 1 : 37) {
    const auto tie = static_cast<float>((value_of(weights.dtype, weight) + value_of(weights.dtype, weight + 1)) / 2);
    const auto bits = std::bit_cast<std::uint32_t>(tie);
    for (const std::uint32_t distance : {0U, 1U, 2U, 3U, 5U, 17U, 100U, 1000U, 3000U, 20000U}) {
      masters.push_back(bits + distance);
      if (bits >= distance) masters.push_back((bits - distance) | 0x80000000);
    }
  }
  for (std::uint32_t bits = 0x477fc000; bits <= 0x47801000; bits += 61) masters.push_back(bits);  // the end of F16
  for (std::uint32_t bits = 0x7f7e0000; bits < 0x7f800000; bits += 127) masters.push_back(bits);  // the end of BF16
  return masters;
}

void expect_weights_kept(const Format& weights) {
  const std::vector<std::uint32_t> masters = masters_for(weights);
  for (unsigned extra = 0; weights.mantissa + extra < 23; ++extra) {
    const auto quantizer = RoundMantissa::of_master(weights.dtype, extra);
    ASSERT_TRUE(quantizer);
    const unsigned kept = weights.mantissa + extra;
    ASSERT_EQ(quantizer->kept_bits(), kept);
    std::vector<std::uint32_t> first;
    ErrorTally tally;
    at_every_level_and_float_mode([&] {
      tally = {};
      const std::vector<std::uint32_t> rounded = quantized(*quantizer, DType::f32, masters, tally);
      ASSERT_EQ(quantized(*quantizer, DType::f32, rounded), rounded) << "idempotent, extra " << extra;
      if (first.empty()) first = rounded;
      ASSERT_EQ(rounded, first) << "differs between levels, extra " << extra;
    });
    std::uint64_t past_nearest = 0;
    for (std::size_t i = 0; i < masters.size() && !testing::Test::HasFailure(); ++i) {
      const std::uint32_t x = masters[i];
      ASSERT_EQ(weight_of(weights, first[i]), weight_of(weights, x)) << std::hex << x << " extra " << extra;
      if (!kF32.finite(x) || kF32.magnitude(x) == 0) {
        ASSERT_EQ(first[i], x);
        continue;
      }
      const Neighbours around = neighbours_of(kF32, kF32.magnitude(x), kept);
      const std::uint32_t sign = x & 0x80000000;
      if (first[i] == (sign | around.nearest)) continue;
      ++past_nearest;
      const bool overflows = around.nearest == kF32.infinity();
      // The nearest number has another weight.
      ASSERT_TRUE(overflows || weight_of(weights, sign | around.nearest) != weight_of(weights, x)) << std::hex << x;
      if (first[i] == x) {
        ASSERT_TRUE(extra == 0 && overflows && weights.dtype == DType::bf16) << std::hex << x;
        continue;
      }
      ASSERT_EQ(first[i], sign | (around.nearest == around.below ? around.above : around.below)) << std::hex << x;
    }
    EXPECT_EQ(tally.past_nearest, past_nearest) << "extra " << extra;
    EXPECT_LE(tally.max_relative, quantizer->bound_past_nearest());
    EXPECT_TRUE(extra == 0 || past_nearest > 0) << "the masters include such elements";
  }
}

TEST(RoundMantissa, KeepsTheBf16WeightsOfMasters) { expect_weights_kept(kBf16); }
TEST(RoundMantissa, KeepsTheF16WeightsOfMasters) { expect_weights_kept(kF16); }

TEST(RoundMantissa, GivesTheSameResultForEveryPart) {
  const auto quantizer = RoundMantissa::of_master(DType::bf16, 3);
  const std::vector<std::uint32_t> elements = edge_floats(5000);
  const std::vector<std::uint32_t> whole = quantized(*quantizer, DType::f32, elements);
  for (const std::size_t size : {1U, 7U, 1023U, 1025U, 4099U}) {
    std::vector<std::uint32_t> parts;
    for (std::size_t first = 0; first < elements.size(); first += size) {
      const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = elements.begin() + static_cast<std::ptrdiff_t>(std::min(first + size, elements.size()));
      const auto part = quantized(*quantizer, DType::f32, std::vector<std::uint32_t>(begin, end));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    ASSERT_EQ(parts, whole) << size;
  }
}

TEST(RoundMantissa, AcceptsUnalignedElements) {
  const auto quantizer = RoundMantissa::of(DType::f32, 3);
  std::vector<std::byte> bytes(1 + 4 * 1000);
  const float value = 1.2345F;
  for (std::size_t i = 0; i < 1000; ++i) store_le(bytes.data() + 1 + 4 * i, value);
  ErrorTally tally;
  ASSERT_TRUE(quantizer->quantize(DType::f32, ByteSpan(bytes).subspan(1), {}, &tally));
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(load_le<float>(bytes.data() + 1 + 4 * i), 1.25F);
  ASSERT_TRUE(quantizer->quantize(DType::f32, {}, {}, &tally)) << "no elements";
  EXPECT_EQ(tally.elements, 1000U);
}

TEST(RoundMantissa, ReportsItsBounds) {
  EXPECT_EQ(RoundMantissa::of(DType::f32, 3)->bound(), 1.0 / 16);
  EXPECT_EQ(RoundMantissa::of(DType::f32, 0)->bound(), 1.0 / 2);
  EXPECT_EQ(RoundMantissa::of_master(DType::bf16, 4)->bound(), std::ldexp(1.0, -12));
  EXPECT_EQ(RoundMantissa::of_master(DType::bf16, 4)->bound_past_nearest(), std::ldexp(1.0, -11));
}

TEST(RoundMantissa, RefusesInvalidArguments) {
  EXPECT_EQ(RoundMantissa::of(DType::f64, 3).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(RoundMantissa::of(DType::i32, 3).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(RoundMantissa::of(DType::f32, 23).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(RoundMantissa::of(DType::bf16, 7).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(RoundMantissa::of_master(DType::f32, 1).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(RoundMantissa::of_master(DType::bf16, 16).error().kind(), ErrorKind::invalid_argument);
  EXPECT_EQ(RoundMantissa::of_master(DType::f16, 13).error().kind(), ErrorKind::invalid_argument);
  std::vector<float> floats(3, 1.1F);
  const std::vector<float> as_they_were = floats;
  const auto bytes = std::as_writable_bytes(std::span(floats));
  ErrorTally tally;
  const auto three = RoundMantissa::of(DType::f32, 3);
  const Beside other{DType::f32, bytes};
  EXPECT_FALSE(three->quantize(DType::bf16, bytes, {}, &tally));
  EXPECT_FALSE(three->quantize(DType::f32, bytes.first(7), {}, &tally));
  EXPECT_FALSE(three->quantize(DType::f32, bytes, {&other, 1}, &tally));
  EXPECT_EQ(floats, as_they_were);
  EXPECT_EQ(tally, ErrorTally{});
}

}  // namespace
}  // namespace bitsnap::quantize
