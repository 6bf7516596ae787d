// ChunkDraws: which chunks are drawn, and that their mean is one over bytes, with an interval that holds.
#include "store/chunk_draws.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace bitsnap::store {
namespace {

std::vector<SampledUnit> units(std::size_t count, std::uint64_t bytes, std::uint32_t stratum) {
  return std::vector<SampledUnit>(count, {bytes, stratum});
}

std::vector<double> pick(const ChunkDraws& draws, const std::vector<double>& shares) {
  std::vector<double> picked;
  for (const std::size_t number : draws.numbers()) picked.push_back(shares[number]);
  return picked;
}

TEST(ChunkDraws, DrawsAllChunksOfASmallState) {
  auto chunks = units(5, 100, 1);
  chunks.push_back({300, 2});
  const ChunkDraws draws(chunks, UINT64_MAX, 1);
  EXPECT_EQ(draws.numbers(), (std::vector<std::size_t>{0, 1, 2, 3, 4, 5}));
  const SampledShare share = draws.share(std::vector<double>{1, 1, 1, 1, 1, 0});
  EXPECT_NEAR(share.all, 5.0 / 8, 1e-12);
  for (const double each : share.subsamples) EXPECT_NEAR(each, 5.0 / 8, 1e-12);
}

TEST(ChunkDraws, DrawsTheSampleFromAllStrata) {
  auto chunks = units(1000, 100, 1);
  const auto others = units(1000, 300, 2);
  chunks.insert(chunks.end(), others.begin(), others.end());
  const auto few = units(20, 1, 3);
  chunks.insert(chunks.end(), few.begin(), few.end());
  const ChunkDraws draws(chunks, 40'000, 1);
  std::uint64_t bytes = 0;
  for (const std::size_t number : draws.numbers()) bytes += chunks[number].bytes;
  EXPECT_NEAR(static_cast<double>(bytes), 40'000, 800);
  EXPECT_GE(std::ranges::count_if(draws.numbers(), [](std::size_t number) { return number >= 2000; }), 10);
  EXPECT_NE(draws.numbers(), ChunkDraws(chunks, 40'000, 2).numbers());
  EXPECT_EQ(draws.numbers(), ChunkDraws(chunks, 40'000, 1).numbers());
}

TEST(ChunkDraws, WeighsChunksByTheirBytes) {
  std::vector<SampledUnit> chunks;
  std::vector<double> shares;
  for (std::size_t i = 0; i < 4000; ++i) {
    chunks.push_back({i % 2 == 0 ? 900U : 100U, 1});
    shares.push_back(i % 2 == 0 ? 1 : 0);
  }
  const ChunkDraws draws(chunks, 300'000, 7);
  EXPECT_NEAR(draws.share(pick(draws, shares)).all, 0.9, 0.05);
}

TEST(ChunkDraws, StatesAnIntervalThatHolds) {
  std::vector<SampledUnit> chunks = units(3000, 100, 1);
  std::vector<double> shares;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    shares.push_back(0.7 + static_cast<double>(i) / 20'000 + 0.1 * std::sin(static_cast<double>(i * i)));
  }
  const double truth = std::accumulate(shares.begin(), shares.end(), 0.0) / 3000;
  int held = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const ChunkDraws draws(chunks, 20'000, seed);
    const SampledShare share = draws.share(pick(draws, shares));
    const double error = error_of_mean(share.subsamples);
    EXPECT_LT(error, 0.03);
    held += std::abs(share.all - truth) <= error ? 1 : 0;
  }
  EXPECT_GE(held, 372);  // 93 of 100
}

TEST(ErrorOfMean, KnowsStudentsDistribution) {
  EXPECT_EQ(error_of_mean(std::vector<double>{1}), 0);
  EXPECT_NEAR(error_of_mean(std::vector<double>{0, 2}), 12.706, 1e-3);
  EXPECT_NEAR(error_of_mean(std::vector<double>{0, 1, 2, 3}), 3.182 * 1.29099 / 2, 0.03);
}

}  // namespace
}  // namespace bitsnap::store
