// The runs of a tensor that are in a sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include <bitsnap/tensor.hpp>

#include "analyze/sample_runs.hpp"

namespace bitsnap::analyze {
namespace {

TEST(SampleRuns, CoverAWholeTensorExactlyOnceIfAllOfItIsWanted) {
  const std::uint64_t elements = 2 * kChunkElements + 5;
  const auto runs = spread_runs(3, elements, elements);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[1].tensor, 3U);
  EXPECT_EQ(runs[1].first, kChunkElements);
  EXPECT_EQ(runs[2].elements, 5U);
}

TEST(SampleRuns, LieInDifferentChunksAndSumToTheWantedElements) {
  for (const std::uint64_t elements :
       {std::uint64_t{70'000}, 9 * kChunkElements, 9 * kChunkElements + 100'000, std::uint64_t{1} << 33}) {
    for (const std::uint64_t wanted : {std::uint64_t{16'384}, elements / 50 + 1, elements / 3, elements - 1}) {
      if (wanted > std::uint64_t{1} << 26) continue;
      std::uint64_t taken = 0;
      std::uint64_t last_chunk = ~std::uint64_t{0};
      for (const SampleRun& run : spread_runs(0, elements, wanted)) {
        ASSERT_GT(run.elements, 0U);
        ASSERT_LE(run.first + run.elements, elements);
        ASSERT_EQ(run.first / kChunkElements, (run.first + run.elements - 1) / kChunkElements);
        ASSERT_NE(run.first / kChunkElements, last_chunk);
        last_chunk = run.first / kChunkElements;
        taken += run.elements;
      }
      EXPECT_LE(taken, wanted + wanted / 10 + 10'000) << elements << " " << wanted;
      EXPECT_GE(taken, std::min(wanted, elements) / 2) << elements << " " << wanted;
    }
  }
}

TEST(SampleRuns, BeginAtDifferentOffsetsInTheirChunks) {
  std::uint64_t latest = 0;
  for (const SampleRun& run : spread_runs(0, 64 * kChunkElements, 8 * kRunElements - 64)) {
    EXPECT_LE(run.elements, kRunElements);
    latest = std::max(latest, run.first % kChunkElements);
  }
  EXPECT_GT(latest, kChunkElements / 4);
}

}  // namespace
}  // namespace bitsnap::analyze
