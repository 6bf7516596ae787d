// Tests that precedents depend on the order of members only, not on which thread is ready first.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "plan/shared_choice.hpp"

namespace bitsnap::plan {
namespace {

Choice choice_of(std::uint64_t bytes) {
  Choice choice;
  choice.expected_bytes = bytes;
  return choice;
}

TEST(SharedChoice, FirstMemberThatChoseIsThePrecedentOfLaterOnes) {
  SharedChoice group;
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(group.add_member(), i);
  EXPECT_EQ(group.wait_for_precedent(0), nullptr) << "no member is before it";
  group.settle(0, {});
  EXPECT_EQ(group.wait_for_precedent(1), nullptr);
  group.settle(3, choice_of(3));
  group.settle(1, {});
  group.settle(2, choice_of(2));
  for (const std::size_t member : {3U, 4U}) EXPECT_EQ(group.wait_for_precedent(member)->expected_bytes, 2U);
  EXPECT_EQ(group.wait_for_precedent(2), nullptr);
}

TEST(SharedChoice, WaitsForEarlierMembersOnly) {
  SharedChoice group;
  for (std::size_t i = 0; i < 3; ++i) group.add_member();
  group.settle(1, choice_of(1));
  std::uint64_t found = 0;
  std::thread last([&] { found = group.wait_for_precedent(2)->expected_bytes; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it may not have taken the second's by then
  group.settle(0, choice_of(10));
  last.join();
  EXPECT_EQ(found, 10U);
}

TEST(SharedChoice, SeatSettlesWhenItIsDestroyed) {
  SharedChoice group;
  for (std::size_t i = 0; i < 3; ++i) group.add_member();
  {
    Seat first(&group, 0);
    Seat second(&group, 1);
    second.settle(choice_of(7));
  }
  EXPECT_EQ(Seat(&group, 2).wait_for_precedent()->expected_bytes, 7U);
  Seat alone;
  EXPECT_EQ(alone.wait_for_precedent(), nullptr);
  alone.settle(choice_of(1));
}

TEST(SharedChoice, ManyThreadsAgreeOnOnePrecedent) {
  constexpr std::size_t kMembers = 64;
  constexpr std::size_t kFirst = 5;
  for (int round = 0; round < 20; ++round) {
    SharedChoice group;
    for (std::size_t i = 0; i < kMembers; ++i) group.add_member();
    std::vector<std::uint64_t> found(kMembers);
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t i = thread; i < kMembers; i += 4) {
          Seat seat(&group, i);
          const Choice* const precedent = seat.wait_for_precedent();
          found[i] = precedent != nullptr ? precedent->expected_bytes : 0;
          if (i >= kFirst) seat.settle(choice_of(i));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < kMembers; ++i) EXPECT_EQ(found[i], i <= kFirst ? 0 : kFirst);
  }
}

}  // namespace
}  // namespace bitsnap::plan
