// The errors of executors: the first in the order of items, cancellation, and exceptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "exec/executor_testing.hpp"

namespace bitsnap::exec {
namespace {

TEST_P(ExecutorTest, ReturnsTheFirstErrorInTheOrderOfItems) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t items = 1 + random() % 60;
    std::set<std::size_t> bad_work;
    std::set<std::size_t> bad_commit;
    for (std::uint64_t i = random() % 4; i > 0; --i) bad_work.insert(random() % items);
    for (std::uint64_t i = random() % 4; i > 0; --i) bad_commit.insert(random() % items);
    const std::size_t first =
        std::min(bad_work.empty() ? items : *bad_work.begin(), bad_commit.empty() ? items : *bad_commit.begin());
    const auto executor = make(static_cast<unsigned>(1 + random() % 5));
    std::vector<std::size_t> committed;
    const auto result = executor->run_ordered(
        items, random() % 7,
        [&](std::size_t item, std::size_t) -> Result<void> {
          delay(seed, item);
          if (bad_work.contains(item)) return fail(ErrorKind::corrupt, message_of(item));
          return {};
        },
        [&](std::size_t item, std::size_t) -> Result<void> {
          delay(seed + 1, item);
          if (bad_commit.contains(item)) return fail(ErrorKind::corrupt, message_of(item));
          committed.push_back(item);
          return {};
        });
    ASSERT_EQ(result.has_value(), first == items) << seed;
    if (!result) {
      EXPECT_EQ(result.error().kind(), ErrorKind::corrupt);
      EXPECT_EQ(result.error().message(), message_of(first)) << seed;
    }
    ASSERT_EQ(committed.size(), first) << "everything before the first error is committed, seed " << seed;
    for (std::size_t i = 0; i < first; ++i) EXPECT_EQ(committed[i], i);
  }
}

TEST_P(ExecutorTest, ReturnsTheFirstErrorWithoutOrder) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const std::size_t items = 1 + random() % 60;
    std::set<std::size_t> bad;
    for (std::uint64_t i = 1 + random() % 5; i > 0; --i) bad.insert(random() % items);
    std::vector<std::atomic<int>> worked(items);
    const auto result = make(4)->run(items, 0, [&](std::size_t item, std::size_t) -> Result<void> {
      delay(seed, item);
      ++worked[item];
      if (bad.contains(item)) return fail(ErrorKind::truncated, message_of(item));
      return {};
    });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message(), message_of(*bad.begin()));
    for (std::size_t i = 0; i <= *bad.begin(); ++i) EXPECT_EQ(worked[i].load(), 1);
  }
}

TEST_P(ExecutorTest, StopsWhenCancelled) {
  for (const unsigned threads : {1u, 4u}) {
    const auto executor = make(threads);
    const CancelToken token;
    const CancelToken copy = token;
    std::atomic<std::size_t> committed{0};
    const auto result = executor->run_ordered(
        1000000, 4, [](std::size_t, std::size_t) -> Result<void> { return {}; },
        [&](std::size_t item, std::size_t) -> Result<void> {
          ++committed;
          if (item == 10) copy.request_cancel();
          return {};
        },
        &token);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind(), ErrorKind::cancelled);
    EXPECT_EQ(committed.load(), 11u);

    std::atomic<std::size_t> worked{0};
    const auto work = [&](std::size_t, std::size_t) -> Result<void> {
      ++worked;
      return {};
    };
    const auto again = executor->run(1000, 0, work, &token);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().kind(), ErrorKind::cancelled);
    EXPECT_EQ(worked.load(), 0u) << "cancelled before it began";
  }
}

TEST_P(ExecutorTest, CommitsNothingAfterCancellation) {
  const auto executor = make(2);
  const CancelToken token;
  std::atomic<std::size_t> worked{0};
  std::size_t committed = 0;
  const auto result = executor->run_ordered(
      10, 4,
      [&](std::size_t item, std::size_t) -> Result<void> {
        if (item == 0) {
          for (int tries = 0; tries < 5000 && worked < 3; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }
        ++worked;
        return {};
      },
      [&](std::size_t, std::size_t) -> Result<void> {
        ++committed;
        token.request_cancel();
        return {};
      },
      &token);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind(), ErrorKind::cancelled);
  EXPECT_EQ(committed, 1u);
}

TEST_P(ExecutorTest, CancelsFromAnotherThread) {
  const auto executor = make(3);
  const CancelToken token;
  std::thread canceller([token] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    token.request_cancel();
  });
  const auto result = executor->run(
      100000000, 0,
      [](std::size_t, std::size_t) -> Result<void> {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        return {};
      },
      &token);
  canceller.join();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind(), ErrorKind::cancelled);
}

TEST_P(ExecutorTest, ReportsAnErrorThatPrecedesTheCancellation) {
  const CancelToken token;
  const auto result = make(4)->run(
      100, 0,
      [&](std::size_t item, std::size_t) -> Result<void> {
        if (item != 3) return {};
        token.request_cancel();
        return fail(ErrorKind::io, message_of(item));
      },
      &token);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), message_of(3));
}

TEST_P(ExecutorTest, SucceedsIfEverythingWasDoneBeforeTheCancellation) {
  for (const unsigned threads : {1u, 4u}) {
    const CancelToken token;
    const auto result = make(threads)->run_ordered(
        20, 0, [](std::size_t, std::size_t) -> Result<void> { return {}; },
        [&](std::size_t item, std::size_t) -> Result<void> {
          if (item == 19) token.request_cancel();
          return {};
        },
        &token);
    EXPECT_TRUE(result);
  }
}

TEST_P(ExecutorTest, TurnsExceptionsIntoErrors) {
  for (const unsigned threads : {1u, 4u}) {
    const auto executor = make(threads);
    const auto nothing = [](std::size_t, std::size_t) -> Result<void> { return {}; };
    const auto standard = executor->run(50, 0, [](std::size_t item, std::size_t) -> Result<void> {
      if (item == 7) throw std::runtime_error("the message");
      return {};
    });
    ASSERT_FALSE(standard);
    EXPECT_EQ(standard.error().kind(), ErrorKind::internal);
    EXPECT_EQ(standard.error().message(), "item 7: exception: the message");

    const auto memory = executor->run_ordered(50, 0, nothing, [](std::size_t item, std::size_t) -> Result<void> {
      if (item == 9) throw std::bad_alloc();
      return {};
    });
    ASSERT_FALSE(memory);
    EXPECT_EQ(memory.error().kind(), ErrorKind::resource_exhausted);

    const auto other = executor->run_ordered(
        50, 0,
        [](std::size_t item, std::size_t) -> Result<void> {
          if (item == 11) throw 5;
          return {};
        },
        nothing);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().kind(), ErrorKind::internal);
    EXPECT_TRUE(executor->run(50, 0, nothing)) << "the executor is still usable";
  }
}

}  // namespace
}  // namespace bitsnap::exec
