// Tests of the places of a sample's runs.
#include "base/spread_runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace bitsnap {
namespace {

constexpr SpreadRuns kTested{.count = 64, .elements = 128, .alignment = 16};

TEST(SpreadRunsTest, LieInDifferentSegments) {
  for (const std::size_t elements : {8192U, 8193U, 20000U, 262144U}) {
    for (std::size_t run = 0; run < 64; ++run) {
      const std::size_t segment = elements / 64;
      const std::size_t start = kTested.start(run, elements);
      EXPECT_GE(start, run * segment);
      EXPECT_LE(start + 128, (run + 1) * segment);
      EXPECT_EQ((start - run * segment) % 16, 0U);
    }
  }
}

TEST(SpreadRunsTest, SeeOtherColumnsInEveryRow) {
  for (const std::size_t columns : {512U, 1024U, 3072U, 4096U, 8192U}) {
    std::set<std::size_t> seen;
    for (std::size_t run = 0; run < 64; ++run) seen.insert(kTested.start(run, 262144) % columns / 128);
    EXPECT_GE(seen.size(), std::min<std::size_t>(columns / 128, 32) * 3 / 4) << columns;
  }
}

}  // namespace
}  // namespace bitsnap
