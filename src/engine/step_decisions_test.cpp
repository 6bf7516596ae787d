// Decisions of one agent for its ranks: the same for all, and only where every rank has a slot.
#include "engine/step_decisions.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace bitsnap::engine {
namespace {

TEST(StepDecisions, AreTheSameForAllRanks) {
  StepDecisions decisions;
  EXPECT_TRUE(decisions.decide(0, 1, std::vector<FreeSlots>{{0, 1}, {1, 1}}));
  // The slots of the first moment count.
  EXPECT_TRUE(decisions.decide(1, 1, std::vector<FreeSlots>{{0, 0}, {1, 1}}));
  EXPECT_FALSE(decisions.decide(1, 2, std::vector<FreeSlots>{{0, 0}, {1, 1}}));
  EXPECT_FALSE(decisions.decide(0, 2, std::vector<FreeSlots>{{0, 1}, {1, 1}}));
}

TEST(StepDecisions, CountOnASlotForEachStepThatARankWillSave) {
  const std::vector<FreeSlots> one{{0, 1}, {1, 1}};
  const std::vector<FreeSlots> two{{0, 2}, {1, 2}};
  {
    StepDecisions decisions;
    EXPECT_TRUE(decisions.decide(0, 1, one));
    decisions.note_staged(0, 1);
    EXPECT_FALSE(decisions.decide(0, 2, one)) << "rank 1 needs its slot for step 1";
  }
  StepDecisions decisions;
  EXPECT_TRUE(decisions.decide(0, 1, two));
  decisions.note_staged(0, 1);
  EXPECT_TRUE(decisions.decide(0, 2, two));
  EXPECT_TRUE(decisions.decide(1, 1, two));
  EXPECT_FALSE(decisions.decide(0, 3, two)) << "rank 1 has yet to save steps 1 and 2";
  decisions.note_staged(1, 1);
  EXPECT_FALSE(decisions.decide(0, 4, one)) << "rank 1 has yet to save step 2";
  // A rank that has gone on will not save what came before.
  EXPECT_FALSE(decisions.decide(1, 4, one));
  decisions.note_staged(0, 2);
  EXPECT_TRUE(decisions.decide(1, 5, one));
}

TEST(StepDecisions, FollowARankThatHasSavedTheStepAlready) {
  StepDecisions decisions;
  decisions.note_staged(1, 7);
  EXPECT_TRUE(decisions.decide(0, 7, std::vector<FreeSlots>{{0, 1}, {1, 0}}));
}

TEST(StepDecisions, AreMadeAgainWhereAJobHasGoneBack) {
  StepDecisions decisions;
  const std::vector<FreeSlots> none{{0, 0}, {1, 0}};
  const std::vector<FreeSlots> one{{0, 1}, {1, 1}};
  EXPECT_FALSE(decisions.decide(0, 4, none));
  EXPECT_FALSE(decisions.decide(1, 4, one));
  EXPECT_TRUE(decisions.decide(1, 4, one));
  EXPECT_TRUE(decisions.decide(0, 4, none)) << "the new decision, for both";
}

TEST(StepDecisions, ForgetWhatARestartedJobDoesNotFollow) {
  StepDecisions decisions;
  const std::vector<FreeSlots> slots{{0, 1}, {1, 1}};
  EXPECT_TRUE(decisions.decide(0, 1, slots));
  decisions.note_hello(0);
  decisions.note_hello(1);
  EXPECT_TRUE(decisions.decide(0, 2, slots));
}

// A rank that is told to save a step has a slot for it, whatever the order of the ranks and of what the agent frees.
TEST(StepDecisions, NeverPromiseASlotTwice) {
  constexpr std::uint32_t kRankCount = 3;
  int saved = 0;
  int skipped = 0;
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const std::size_t slots = 1 + seed % 2;
    StepDecisions decisions;
    std::vector<FreeSlots> free;
    std::vector<std::uint64_t> next(kRankCount, 1);
    std::vector<std::vector<bool>> told(kRankCount, std::vector<bool>(1, false));
    for (std::uint32_t rank = 0; rank < kRankCount; ++rank) free.push_back({rank, slots});
    for (int event = 0; event < 60; ++event) {
      const auto rank = static_cast<std::uint32_t>(random() % kRankCount);
      if (random() % 3 == 0) {
        free[rank].free = slots;  // the agent has encoded what was there
        continue;
      }
      told[rank].push_back(decisions.decide(rank, next[rank], free));
      if (told[rank].back()) {
        ASSERT_GT(free[rank].free, 0u) << "seed " << seed << ", step " << next[rank];
        --free[rank].free;
        decisions.note_staged(rank, next[rank]);
      }
      ++(told[rank].back() ? saved : skipped);
      ++next[rank];
      for (std::uint32_t other = 0; other < kRankCount; ++other) {
        const std::size_t common = std::min(told[rank].size(), told[other].size()) - 1;
        ASSERT_EQ(told[rank][common], told[other][common]) << "seed " << seed << ", step " << common;
      }
    }
  }
  EXPECT_GT(saved, 1000);
  EXPECT_GT(skipped, 1000);
}

}  // namespace
}  // namespace bitsnap::engine
