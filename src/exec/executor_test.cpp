// The guarantees of executor.hpp about order, slots and threads, under many random schedules, for every kind of
// executor.
#include "exec/executor.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "exec/executor_testing.hpp"

namespace bitsnap::exec {
namespace {

#if defined(BITSNAP_PLAIN_THREADS)
constexpr ExecutorKind kKinds[] = {{"Plain", make_plain_executor}, {"Background", make_background_executor}};
#else
constexpr ExecutorKind kKinds[] = {
    {"Plain", make_plain_executor}, {"Background", make_background_executor}, {"Tbb", make_executor}};
#endif
// Also for the tests of executor_errors_test.cpp.
INSTANTIATE_TEST_SUITE_P(All, ExecutorTest, testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ExecutorTest, CommitsEveryItemInOrderAfterItsWork) {
  for (const unsigned threads : {1u, 2u, 3u, 8u}) {
    const auto executor = make(threads);
    EXPECT_EQ(executor->threads(), threads);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const std::size_t items = seed * 7;
      const std::size_t slots = seed % 5;
      std::vector<int> worked(items, 0);
      std::vector<std::size_t> committed;
      const auto result = executor->run_ordered(
          items, slots,
          [&](std::size_t item, std::size_t) -> Result<void> {
            delay(seed, item);
            ++worked[item];
            return {};
          },
          [&](std::size_t item, std::size_t) -> Result<void> {
            delay(seed + 1, item);
            EXPECT_EQ(worked[item], 1);
            committed.push_back(item);  // no lock: commits run one at a time and see each other
            return {};
          });
      ASSERT_TRUE(result) << result.error().message();
      ASSERT_EQ(committed.size(), items);
      for (std::size_t i = 0; i < items; ++i) EXPECT_EQ(committed[i], i);
    }
  }
}

TEST_P(ExecutorTest, HoldsEachSlotForOneItemFromWorkToCommit) {
  for (const std::size_t slots : {2u, 3u, 5u, 16u}) {
    const auto executor = make(4);
    std::vector<std::atomic<std::size_t>> owner(slots);  // item + 1
    std::atomic<std::size_t> held{0};
    std::atomic<std::size_t> most_held{0};
    const auto result = executor->run_ordered(
        200, slots,
        [&](std::size_t item, std::size_t slot) -> Result<void> {
          if (slot >= slots) return fail(ErrorKind::internal, "no such slot");
          EXPECT_EQ(owner[slot].exchange(item + 1), 0u);
          const std::size_t now = held.fetch_add(1) + 1;
          std::size_t most = most_held.load();
          while (now > most && !most_held.compare_exchange_weak(most, now)) {
          }
          delay(slots, item);
          return {};
        },
        [&](std::size_t item, std::size_t slot) -> Result<void> {
          delay(slots + 1, item);
          EXPECT_EQ(owner[slot].exchange(0), item + 1);
          held.fetch_sub(1);
          return {};
        });
    ASSERT_TRUE(result);
    EXPECT_LE(most_held.load(), slots);
    EXPECT_EQ(held.load(), 0u);
  }
}

TEST_P(ExecutorTest, UsesAllSlotsButNoMoreWhileTheFirstItemIsSlow) {
  constexpr std::size_t kSlots = 5;
  const auto executor = make(3);
  std::atomic<std::size_t> started{0};
  std::size_t started_meanwhile = 0;
  const auto result = executor->run_ordered(
      50, kSlots,
      [&](std::size_t item, std::size_t) -> Result<void> {
        ++started;
        if (item == 0) {
          for (int tries = 0; tries < 5000 && started < kSlots; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          started_meanwhile = started;
        }
        return {};
      },
      [](std::size_t, std::size_t) -> Result<void> { return {}; });
  ASSERT_TRUE(result);
  EXPECT_EQ(started_meanwhile, kSlots);
  EXPECT_EQ(started.load(), 50u);
}

TEST_P(ExecutorTest, WorksOnOtherItemsDuringACommit) {
  const auto executor = make(2);
  std::atomic<std::size_t> worked{0};
  bool overlapped = false;
  const auto result = executor->run_ordered(
      8, 4,
      [&](std::size_t, std::size_t) -> Result<void> {
        ++worked;
        return {};
      },
      [&](std::size_t item, std::size_t) -> Result<void> {
        if (item == 0) {
          for (int tries = 0; tries < 5000 && worked < 4; ++tries) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          overlapped = worked >= 4;
        }
        return {};
      });
  ASSERT_TRUE(result);
  EXPECT_TRUE(overlapped);
}

TEST_P(ExecutorTest, ReusesAThreadThatLeft) {
  const auto executor = make(2);
  std::atomic<unsigned> arrived{0};
  const auto result = executor->run_ordered(
      4, 2,
      [&](std::size_t item, std::size_t) -> Result<void> {
        if (item < 2) return {};
        ++arrived;  // the last two items wait for each other
        for (int tries = 0; tries < 5000 && arrived < 2; ++tries) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return {};
      },
      [&](std::size_t item, std::size_t) -> Result<void> {
        // Both slots are in use meanwhile, so the other thread leaves.
        if (item == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (item == 2) {
          EXPECT_EQ(arrived.load(), 2u);
        }
        return {};
      });
  ASSERT_TRUE(result);
}

TEST_P(ExecutorTest, UsesAllItsThreads) {
  constexpr unsigned kThreads = 4;
  const auto executor = make(kThreads);
  for (const bool ordered : {false, true}) {
    std::atomic<unsigned> arrived{0};
    const auto work = [&](std::size_t, std::size_t) -> Result<void> {
      ++arrived;
      for (int tries = 0; tries < 5000 && arrived < kThreads; ++tries) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return {};
    };
    const auto commit = [](std::size_t, std::size_t) -> Result<void> { return {}; };
    ASSERT_TRUE(ordered ? executor->run_ordered(kThreads, 0, work, commit) : executor->run(kThreads, 0, work));
    EXPECT_EQ(arrived.load(), kThreads);
  }
}

TEST_P(ExecutorTest, RunsEveryItemOnceWithoutOrder) {
  for (const std::size_t slots : {0u, 1u, 2u, 9u}) {
    const auto executor = make(4);
    std::vector<std::atomic<int>> worked(300);
    std::vector<std::atomic<int>> used(std::max<std::size_t>(slots, executor->default_slots()));
    ASSERT_TRUE(executor->run(worked.size(), slots, [&](std::size_t item, std::size_t slot) -> Result<void> {
      EXPECT_EQ(used[slot].fetch_add(1), 0) << "two items at once in slot " << slot;
      delay(slots, item);
      ++worked[item];
      used[slot].fetch_sub(1);
      return {};
    }));
    for (const auto& count : worked) EXPECT_EQ(count.load(), 1);
  }
}

TEST_P(ExecutorTest, RunsANestedCallInlineOnTheSameThread) {
  const auto executor = make(3);
  const auto other = make(4);
  std::atomic<std::size_t> inner_items{0};
  const auto nested = [&](std::size_t item, std::size_t) -> Result<void> {
    const std::thread::id outer_thread = std::this_thread::get_id();
    return (item % 2 == 0 ? *executor : *other).run(5, 0, [&](std::size_t, std::size_t slot) -> Result<void> {
      EXPECT_EQ(std::this_thread::get_id(), outer_thread);
      EXPECT_EQ(slot, 0u);
      ++inner_items;
      return {};
    });
  };
  ASSERT_TRUE(executor->run_ordered(40, 0, nested, nested));
  EXPECT_EQ(inner_items.load(), 400u);
}

TEST_P(ExecutorTest, RunsInlineWithOneThreadOrOneItem) {
  if (GetParam().make == make_background_executor) GTEST_SKIP() << "a thread of lower priority runs it";
  const std::thread::id caller = std::this_thread::get_id();
  const auto here = [&](std::size_t, std::size_t slot) -> Result<void> {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(slot, 0u);
    return {};
  };
  EXPECT_TRUE(make(1)->run_ordered(30, 10, here, here));
  EXPECT_TRUE(make(1)->run(30, 0, here));
  EXPECT_TRUE(make(8)->run_ordered(1, 0, here, here));
  EXPECT_TRUE(make(8)->run(30, 1, here));
  EXPECT_TRUE(make(8)->run(0, 0, here));
}

TEST_P(ExecutorTest, ServesSeveralCallersAtOnce) {
  const auto executor = make(3);
  std::vector<std::thread> callers;
  std::atomic<int> failures{0};
  for (std::uint64_t caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&, caller] {
      for (std::uint64_t round = 0; round < 10; ++round) {
        std::size_t next = 0;
        const std::size_t bad = 20 + caller;
        const auto result = executor->run_ordered(
            40, 0,
            [&](std::size_t item, std::size_t) -> Result<void> {
              delay(caller * 100 + round, item);
              if (item >= bad) return fail(ErrorKind::corrupt, message_of(item));
              return {};
            },
            [&](std::size_t item, std::size_t) -> Result<void> {
              if (item != next++) ++failures;
              return {};
            });
        if (result || result.error().message() != message_of(bad) || next != bad) ++failures;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST_P(ExecutorTest, ManyShortRunsLeaveNothingBehind) {
  const auto executor = make(4);
  for (int round = 0; round < 300; ++round) {
    std::atomic<std::size_t> sum{0};
    std::size_t in_order = 0;
    ASSERT_TRUE(executor->run_ordered(
        9, 3,
        [&](std::size_t item, std::size_t) -> Result<void> {
          sum += item;
          return {};
        },
        [&](std::size_t item, std::size_t) -> Result<void> {
          in_order += item == in_order ? 1 : 100;
          return {};
        }));
    ASSERT_EQ(sum.load(), 36u);
    ASSERT_EQ(in_order, 9u);
  }
}

// ThreadSanitizer does not support fork in a process with threads.
#if defined(__SANITIZE_THREAD__)
#define BITSNAP_TEST_FORK 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BITSNAP_TEST_FORK 0
#endif
#endif
#if !defined(BITSNAP_TEST_FORK)
#define BITSNAP_TEST_FORK 1
#endif

#if BITSNAP_TEST_FORK
TEST_P(ExecutorTest, ServesAForkedChildInline) {
  auto executor = make(4);
  const auto nothing = [](std::size_t, std::size_t) -> Result<void> { return {}; };
  ASSERT_TRUE(executor->run(100, 0, nothing));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::size_t next = 0;
    const auto result = executor->run_ordered(
        100, 0,
        [](std::size_t item, std::size_t slot) -> Result<void> {
          if (item < 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // gives another thread time to join
          if (slot != 0) return fail(ErrorKind::internal, "not inline");
          return {};
        },
        [&](std::size_t item, std::size_t) -> Result<void> {
          if (item != next++) return fail(ErrorKind::internal, "out of order");
          return {};
        });
    executor.reset();
    _exit(result && next == 100 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  ASSERT_TRUE(executor->run(100, 0, nothing));
}
#endif

TEST_P(ExecutorTest, BoundsTheNumberOfThreads) {
  EXPECT_GE(make(0)->threads(), 1u);
  EXPECT_EQ(make(4000000000u)->threads(), kMaxThreads);
  EXPECT_EQ(make(3)->default_slots(), 6u);
}

}  // namespace
}  // namespace bitsnap::exec
