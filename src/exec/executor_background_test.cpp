// Tests of which threads of a background executor work: those of lower priority, or, while the work is urgent, others.
#include "exec/executor.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "exec/executor_testing.hpp"

namespace bitsnap::exec {
namespace {

int niceness() { return ::getpriority(PRIO_PROCESS, 0); }

class BackgroundExecutorTest : public testing::Test {
 protected:
  ~BackgroundExecutorTest() override { set_urgent(false); }

  // The niceness at which each of the items is worked on and committed; calls `before` for each item.
  template <typename Before>
  std::vector<int> niceness_of_items(unsigned threads, std::size_t items, const Before& before) {
    std::vector<int> found(items, 0);
    std::vector<std::size_t> committed;
    const auto result = make_background_executor(threads)->run_ordered(
        items, 0,
        [&](std::size_t item, std::size_t) -> Result<void> {
          before(item);
          found[item] = niceness();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return {};
        },
        [&](std::size_t item, std::size_t) -> Result<void> {
          committed.push_back(item);
          return {};
        });
    EXPECT_TRUE(result);
    EXPECT_EQ(committed.size(), items);
    EXPECT_TRUE(std::ranges::is_sorted(committed));
    return found;
  }

  const int usual_ = niceness();
  const int lower_ = std::min(usual_ + 10, 19);
};

TEST_F(BackgroundExecutorTest, WorksAtALowerPriorityUnlessTheWorkIsUrgent) {
  for (const unsigned threads : {1U, 2U, 4U}) {
    for (const int nice : niceness_of_items(threads, 20, [](std::size_t) {})) EXPECT_EQ(nice, lower_);
    set_urgent(true);
    for (const int nice : niceness_of_items(threads, 20, [](std::size_t) {})) EXPECT_EQ(nice, usual_);
    set_urgent(false);
    EXPECT_EQ(niceness(), usual_);
  }
}

TEST_F(BackgroundExecutorTest, ChangesThePriorityOfARunThatIsUnderWay) {
  for (const unsigned threads : {1U, 2U, 4U}) {
    // Items that have begun end as they are.
    const std::size_t slack = 2 * threads;
    const auto found = niceness_of_items(threads, 90, [](std::size_t item) {
      if (item == 30) set_urgent(true);
      if (item == 60) set_urgent(false);
    });
    for (std::size_t item = 0; item < 30 - slack; ++item) EXPECT_EQ(found[item], lower_) << item;
    for (std::size_t item = 30 + slack; item < 60 - slack; ++item) EXPECT_EQ(found[item], usual_) << item;
    for (std::size_t item = 60 + slack; item < 90; ++item) EXPECT_EQ(found[item], lower_) << item;
  }
}

TEST_F(BackgroundExecutorTest, GivesTheSameResultHoweverOftenThePriorityChanges) {
  std::atomic<bool> is_over = false;
  std::thread changing([&] {
    for (bool urgent = false; !is_over; urgent = !urgent) {
      set_urgent(urgent);
      std::this_thread::sleep_for(std::chrono::microseconds(700));
    }
  });
  for (const unsigned threads : {1U, 3U}) {
    const auto executor = make_background_executor(threads);
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
      std::size_t next = 0;
      const auto result = executor->run_ordered(
          200, 0,
          [&](std::size_t item, std::size_t) -> Result<void> {
            delay(seed, item);
            return item == 150 ? Result<void>(fail(ErrorKind::io, message_of(item))) : Result<void>();
          },
          [&](std::size_t item, std::size_t) -> Result<void> {
            EXPECT_EQ(item, next++);
            return {};
          });
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().message(), message_of(150));
      EXPECT_EQ(next, 150u);
    }
  }
  is_over = true;
  changing.join();
}

}  // namespace
}  // namespace bitsnap::exec
