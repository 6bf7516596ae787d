#include "os/rate_limit.hpp"

#include <gtest/gtest.h>

namespace bitsnap::os {
namespace {

TEST(RateLimit, WaitsForWhatWasPlannedBefore) {
  RateLimit limit;
  EXPECT_EQ(limit.plan(1'000'000'000), 0);  // there is none yet
  limit.set(1'000);
  EXPECT_EQ(limit.plan(10'000'000), 0);                   // nothing was before it
  const std::uint64_t hours = 10'000ULL * 1'000'000'000;  // which these bytes take
  const std::uint64_t wait = limit.plan(1);
  EXPECT_LE(wait, hours);
  EXPECT_GT(wait, hours - 100ULL * 1'000'000'000);  // less what has passed since
  limit.set(0);
  EXPECT_EQ(limit.plan(1), 0);
}

}  // namespace
}  // namespace bitsnap::os
