// Compares byte counts with a naive count, and tests the quick test for flat blocks.
#include "entropy/histogram.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace bitsnap::entropy {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kHistogramLengths[] = {0, 1, 7, 8, 9, 100, 4096, 65535, 65536};

template <typename Next>
Bytes bytes_from(std::size_t size, Next next) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(next());
  return bytes;
}

TEST(Histogram, CountsLikeTheReferenceAtEveryLength) {
  std::mt19937 random(1);
  for (const std::size_t size : kHistogramLengths) {
    const Bytes bytes = bytes_from(size, [&] { return random() % 40; });
    Histogram expected{};
    for (const std::byte byte : bytes) ++expected[std::to_integer<std::size_t>(byte)];
    Histogram counts;
    counts.fill(99);
    count_bytes(bytes.data(), bytes.size(), counts);
    EXPECT_EQ(counts, expected) << size;
  }
}

TEST(Histogram, CountsMoreEqualBytesThanACounterHolds) {
  const Bytes bytes(std::size_t{3} << 20, std::byte{7});
  Histogram counts;
  count_bytes(bytes.data(), bytes.size(), counts);
  EXPECT_EQ(counts[7], bytes.size());
  EXPECT_EQ(counts[0], 0U);
}

TEST(Histogram, FindsRandomBlocksIncompressible) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Bytes bytes = bytes_from(65536, random);
    EXPECT_TRUE(looks_incompressible(bytes.data(), bytes.size())) << seed;
  }
}

TEST(Histogram, NeverFindsASkewedBlockIncompressible) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    // 7.7 bits: a quarter of the values are twice as frequent as others, and some a third as frequent.
    const Bytes bytes = bytes_from(65536, [&] {
      const unsigned value = static_cast<unsigned>(random() % 256);
      return value >= 64 && value < 160 && random() % 3 != 0 ? random() % 64 : value;
    });
    EXPECT_FALSE(looks_incompressible(bytes.data(), bytes.size())) << seed;
  }
}

TEST(Histogram, CountsShortBlocksCompletely) {
  std::mt19937 random(1);
  const Bytes bytes = bytes_from(1000, random);
  EXPECT_FALSE(looks_incompressible(bytes.data(), bytes.size()));
}

}  // namespace
}  // namespace bitsnap::entropy
