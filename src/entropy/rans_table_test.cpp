// Tests of the lane coder's tables: which symbols get slots, that tables round-trip, and that invalid tables are
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "entropy/rans_table_encode.hpp"

namespace bitsnap::entropy {
namespace {

unsigned sum_of(const RansTable& table) {
  return std::accumulate(table.frequencies.begin(),
                         table.frequencies.begin() + static_cast<std::ptrdiff_t>(table.count), table.escape);
}

bool has(const RansTable& table, unsigned symbol) {
  const auto end = table.symbols.begin() + static_cast<std::ptrdiff_t>(table.count);
  return std::find(table.symbols.begin(), end, symbol) != end;
}

std::vector<std::byte> bytes_of(const RansTable& table) {
  std::vector<std::byte> bytes(kMaxRansTableBytes);
  bytes.resize(write_rans_table(table, bytes.data()));
  return bytes;
}

// The bits of the counted symbols, in floating point.
double cost_of(const Histogram& counts, const RansTable& table) {
  double bits = 0;
  for (unsigned symbol = 0; symbol < 256; ++symbol) {
    double own = 16 - std::log2(table.escape);
    for (std::size_t i = 0; i < table.count; ++i) {
      if (table.symbols[i] == symbol) own = 8 - std::log2(table.frequencies[i]);
    }
    if (counts[symbol] > 0) bits += counts[symbol] * own;
  }
  return bits;
}

Histogram random_counts(std::mt19937& random) {
  Histogram counts{};
  const unsigned center = random() % 256;
  const double width = 0.3 + static_cast<double>(random() % 1000) / 100;
  std::normal_distribution<double> normal(center, width);
  for (int i = 0; i < 2048; ++i) ++counts[static_cast<std::size_t>(std::clamp(normal(random), 0.0, 255.0))];
  if (random() % 2 == 0) counts[random() % 256] += static_cast<std::uint32_t>(random() % 2000);
  return counts;
}

TEST(RansTable, GivesEverySymbolAndTheEscapeASlotAndUsesAllSlots) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const RansTable table = choose_rans_table(random_counts(random)).table;
    ASSERT_GE(table.count, 1U);
    ASSERT_LE(table.count, kRansMaxSymbols);
    EXPECT_EQ(sum_of(table), kRansScale);
    EXPECT_GE(table.escape, 1U) << "the sample may have missed something";
    for (std::size_t i = 0; i < table.count; ++i) EXPECT_GE(table.frequencies[i], 1U);
  }
}

TEST(RansTable, HasThePredictedCost) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const Histogram counts = random_counts(random);
    const RansChoice choice = choose_rans_table(counts);
    EXPECT_NEAR(static_cast<double>(choice.cost) / (1U << kCostBits), cost_of(counts, choice.table), 1.0);
    double total = 0;
    double entropy = 0;
    for (const std::uint32_t count : counts) total += count;
    for (const std::uint32_t count : counts) {
      if (count > 0) entropy += count * std::log2(total / count);
    }
    EXPECT_NEAR(static_cast<double>(entropy_of(counts)) / (1U << kCostBits), entropy, total / 64);
  }
}

TEST(RansTable, CannotImproveBy1In2000ByMovingOneSlot) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const Histogram counts = random_counts(random);
    const RansTable table = choose_rans_table(counts).table;
    const double cost = cost_of(counts, table);
    for (std::size_t from = 0; from < table.count; ++from) {
      for (std::size_t to = 0; to < table.count; ++to) {
        if (from == to || table.frequencies[from] == 1) continue;
        RansTable other = table;
        --other.frequencies[from];
        ++other.frequencies[to];
        EXPECT_LE(cost, cost_of(counts, other) * 1.0005);
      }
    }
  }
}

TEST(RansTable, HasTheMostCommonSymbolEvenFarFromAllOthers) {
  Histogram counts{};
  counts[0] = 500;
  counts[3] = 20;
  for (std::size_t symbol = 110; symbol < 124; ++symbol) counts[symbol] = 100;
  const RansTable table = choose_rans_table(counts).table;
  EXPECT_EQ(table.count, kRansMaxSymbols);
  EXPECT_TRUE(has(table, 0));
  EXPECT_FALSE(has(table, 3));
  EXPECT_TRUE(has(table, 110) && has(table, 123));
}

TEST(RansTable, FillsGapsInTheSample) {
  Histogram counts{};
  counts[100] = 1000;
  counts[104] = 1000;
  const RansTable table = choose_rans_table(counts).table;
  for (unsigned symbol = 100; symbol <= 104; ++symbol) EXPECT_TRUE(has(table, symbol)) << symbol;
}

TEST(RansTable, ReachesBothEndsOfTheSymbols) {
  for (const std::size_t symbol : {0U, 1U, 254U, 255U}) {
    Histogram counts{};
    counts[symbol] = 5;
    const RansTable table = choose_rans_table(counts).table;
    EXPECT_EQ(table.count, 1U);
    EXPECT_EQ(table.symbols[0], symbol);
    EXPECT_EQ(table.frequencies[0], 255U);
    EXPECT_FALSE(table.is_single());
  }
}

TEST(RansTable, RoundTrips) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const RansTable table = round == 0 ? single_rans_table(7) : choose_rans_table(random_counts(random)).table;
    std::vector<std::byte> bytes = bytes_of(table);
    const std::size_t size = bytes.size();
    bytes.push_back(std::byte{0xff});  // the reader must ignore what follows
    RansTable read;
    const Result<std::size_t> used = read_rans_table(bytes, read);
    ASSERT_TRUE(used) << used.error().message();
    EXPECT_EQ(*used, size);
    ASSERT_EQ(read.count, table.count);
    for (std::size_t i = 0; i < read.count; ++i) {
      EXPECT_EQ(read.symbols[i], table.symbols[i]);
      EXPECT_EQ(read.frequencies[i], table.frequencies[i]);
    }
    EXPECT_EQ(read.escape, table.escape);
    EXPECT_EQ(read.is_single(), round == 0);
    for (std::size_t cut = 0; cut < size; ++cut) {
      const Result<std::size_t> short_read = read_rans_table(ConstByteSpan(bytes).first(cut), read);
      ASSERT_FALSE(short_read);
      EXPECT_EQ(short_read.error().kind(), ErrorKind::truncated);
    }
  }
}

void expect_corrupt_table(std::initializer_list<int> table, std::string_view part_of_message) {
  std::vector<std::byte> bytes;
  for (const int byte : table) bytes.push_back(static_cast<std::byte>(byte));
  bytes.resize(40);
  RansTable read;
  const Result<std::size_t> used = read_rans_table(bytes, read);
  ASSERT_FALSE(used) << part_of_message;
  EXPECT_EQ(used.error().kind(), ErrorKind::corrupt);
  EXPECT_NE(used.error().message().find(part_of_message), std::string::npos) << used.error().message();
}

TEST(RansTable, IsRefusedWithoutASymbol) { expect_corrupt_table({0}, "0 symbols"); }
TEST(RansTable, IsRefusedWithSixteenSymbols) { expect_corrupt_table({16}, "16 symbols"); }
TEST(RansTable, IsRefusedWithASymbolTwice) { expect_corrupt_table({3, 7, 8, 7, 1, 1, 1}, "symbol 7 twice"); }
TEST(RansTable, IsRefusedWithASymbolThatHasNoSlot) {
  expect_corrupt_table({2, 7, 8, 1, 0}, "symbol 8 has the frequency 0");
}
TEST(RansTable, IsRefusedWithTooManySlots) { expect_corrupt_table({2, 7, 8, 128, 129}, "257"); }

}  // namespace
}  // namespace bitsnap::entropy
