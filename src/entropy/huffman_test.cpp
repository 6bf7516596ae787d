// Tests of code lengths: they are optimal, their table round-trips, and every invalid table is refused.
#include "entropy/huffman.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <queue>
#include <random>
#include <vector>

#include "entropy/code_lengths_encode.hpp"

namespace bitsnap::entropy {
namespace {

unsigned kraft(const CodeLengths& lengths) {
  unsigned sum = 0;
  for (const unsigned length : lengths) {
    if (length != 0) sum += 1U << (kMaxCodeBits - length);
  }
  return sum;
}

std::uint64_t cost(const Histogram& counts, const CodeLengths& lengths) {
  std::uint64_t bits = 0;
  for (std::size_t symbol = 0; symbol < 256; ++symbol) bits += std::uint64_t{counts[symbol]} * lengths[symbol];
  return bits;
}

// The cost of the optimal code without a length limit: each merge of Huffman's algorithm adds its weight.
std::uint64_t huffman_cost(const Histogram& counts) {
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue;
  for (const std::uint32_t count : counts) {
    if (count != 0) queue.push(count);
  }
  std::uint64_t bits = 0;
  while (queue.size() > 1) {
    std::uint64_t sum = queue.top();
    queue.pop();
    sum += queue.top();
    queue.pop();
    bits += sum;
    queue.push(sum);
  }
  return bits;
}

// The cost of the optimal code within the limit, for few symbols: an exhaustive search over all ways to give `open`
// places at a depth to codes (the rarest symbols are the deepest).
std::uint64_t exhaustive_cost(const std::vector<std::uint32_t>& descending, std::size_t placed, std::size_t open,
                              unsigned depth) {
  constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();
  const std::size_t left = descending.size() - placed;
  if (left == 0) return 0;
  if (depth > kMaxCodeBits || open == 0) return kNone;
  std::uint64_t best = kNone;
  std::uint64_t here = 0;
  for (std::size_t take = 0; take <= std::min(open, left); ++take) {
    if (take > 0) here += std::uint64_t{descending[placed + take - 1]} * depth;
    const std::size_t next_open = std::min((open - take) * 2, descending.size());
    const std::uint64_t rest = exhaustive_cost(descending, placed + take, next_open, depth + 1);
    if (rest != kNone) best = std::min(best, here + rest);
  }
  return best;
}

std::vector<std::byte> table_of(const CodeLengths& lengths) {
  std::vector<std::byte> table(kMaxCodeLengthBytes);
  table.resize(write_code_lengths(lengths, table.data()));
  return table;
}

TEST(CodeLengths, EqualHuffmansIfTheLimitDoesNotBind) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Histogram counts{};
    const std::size_t symbols = 2 + random() % 255;
    for (std::size_t i = 0; i < symbols; ++i) counts[random() % 256] = 40 + static_cast<std::uint32_t>(random() % 400);
    counts[0] = counts[1] = 50;
    CodeLengths lengths;
    choose_code_lengths(counts, lengths);
    EXPECT_EQ(kraft(lengths), 1U << kMaxCodeBits);
    EXPECT_EQ(cost(counts, lengths), huffman_cost(counts));
  }
}

TEST(CodeLengths, AreOptimalWithinTheLimitForSteepCounts) {
  std::mt19937 random(2);
  for (int round = 0; round < 20; ++round) {
    Histogram counts{};
    std::vector<std::uint32_t> all;
    std::uint32_t count = 1;
    for (std::size_t i = 0; i < 15; ++i) {  // steeper than Fibonacci: without the limit, the rarest would take 14 bits
      all.push_back(count);
      counts[(i * 37 + 5) % 256] = count;
      count = count * 2 + static_cast<std::uint32_t>(random() % 3);
    }
    std::sort(all.rbegin(), all.rend());
    CodeLengths lengths;
    choose_code_lengths(counts, lengths);
    EXPECT_LE(*std::max_element(lengths.begin(), lengths.end()), kMaxCodeBits);
    EXPECT_EQ(kraft(lengths), 1U << kMaxCodeBits);
    EXPECT_EQ(cost(counts, lengths), exhaustive_cost(all, 0, 1, 0));
  }
}

TEST(CodeLengths, OfTwoSymbolsAreOneBit) {
  Histogram counts{};
  counts[3] = 1;
  counts[250] = 65535;
  CodeLengths lengths;
  choose_code_lengths(counts, lengths);
  EXPECT_EQ(lengths[3], 1);
  EXPECT_EQ(lengths[250], 1);
}

TEST(CodeLengths, RoundTrip) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    Histogram counts{};
    counts[random() % 128] = counts[128 + random() % 128] = 7;
    const std::size_t symbols = random() % 256;
    for (std::size_t i = 0; i < symbols; ++i) counts[random() % 256] = 1 + static_cast<std::uint32_t>(random() % 9000);
    CodeLengths lengths;
    choose_code_lengths(counts, lengths);
    std::vector<std::byte> table = table_of(lengths);
    EXPECT_LE(table.size(), kMaxCodeLengthBytes);
    const std::size_t size = table.size();
    table.push_back(std::byte{0xff});  // the reader must ignore what follows
    CodeLengths read;
    const Result<std::size_t> used = read_code_lengths(table, read);
    ASSERT_TRUE(used) << used.error().message();
    EXPECT_EQ(*used, size);
    EXPECT_EQ(read, lengths);
    for (std::size_t cut = 0; cut < size; ++cut) {
      const Result<std::size_t> short_read = read_code_lengths(ConstByteSpan(table).first(cut), read);
      ASSERT_FALSE(short_read);
      EXPECT_EQ(short_read.error().kind(), ErrorKind::truncated);
    }
  }
}

void expect_corrupt_lengths(std::initializer_list<int> table, std::string_view part_of_message) {
  std::vector<std::byte> bytes;
  for (const int byte : table) bytes.push_back(static_cast<std::byte>(byte));
  CodeLengths lengths;
  const Result<std::size_t> used = read_code_lengths(bytes, lengths);
  ASSERT_FALSE(used) << part_of_message;
  EXPECT_EQ(used.error().kind(), ErrorKind::corrupt);
  EXPECT_NE(used.error().message().find(part_of_message), std::string::npos) << used.error().message();
}

TEST(CodeLengths, AreRefusedWithoutARange) { expect_corrupt_lengths({0, 1, 2, 0x11}, "no range"); }
TEST(CodeLengths, AreRefusedWhenARangeRunsBackwards) { expect_corrupt_lengths({1, 9, 8, 0x11}, "9..8"); }
TEST(CodeLengths, AreRefusedWhenRangesOverlap) { expect_corrupt_lengths({2, 1, 2, 2, 3, 0x22, 0x22}, "2..3"); }
TEST(CodeLengths, AreRefusedAboveElevenBits) { expect_corrupt_lengths({1, 0, 1, 0xc1}, "12 bits"); }
TEST(CodeLengths, AreRefusedWithNonzeroPadding) { expect_corrupt_lengths({1, 0, 2, 0x21, 0x12}, "not zero"); }
TEST(CodeLengths, AreRefusedWhenOverfull) { expect_corrupt_lengths({1, 0, 2, 0x11, 0x01}, "3072 of 2048"); }
TEST(CodeLengths, AreRefusedWhenIncomplete) { expect_corrupt_lengths({1, 0, 1, 0x21}, "1536 of 2048"); }
TEST(CodeLengths, AreRefusedForASingleSymbol) { expect_corrupt_lengths({1, 5, 5, 0x01}, "1024 of 2048"); }
TEST(CodeLengths, AreRefusedWithoutAnySymbol) { expect_corrupt_lengths({1, 5, 6, 0x00}, "0 of 2048"); }

}  // namespace
}  // namespace bitsnap::entropy
