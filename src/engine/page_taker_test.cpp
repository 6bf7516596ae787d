// Pages that are taken at once and in the background: each once, again after a failure, and none after the end.
#include "engine/page_taker.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/try.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::engine {
namespace {

constexpr std::uint64_t kSize = (std::uint64_t{100} << 20) + 4096;

// Records what is taken.
struct Pages {
  Result<void> take(std::uint64_t offset, std::uint64_t bytes) {
    const std::lock_guard lock(mutex);
    if (left == 0) return fail(ErrorKind::resource_exhausted, "no page is left");
    --left;
    EXPECT_TRUE(taken.emplace(offset, bytes).second) << "twice: " << offset;
    return {};
  }
  // How many bytes from the first on are taken without a gap.
  std::uint64_t reach() {
    const std::lock_guard lock(mutex);
    std::uint64_t end = 0;
    for (const auto& [offset, bytes] : taken) end += offset == end ? bytes : 0;
    return end;
  }

  std::mutex mutex;
  int left = 1000;
  std::map<std::uint64_t, std::uint64_t> taken;
};

std::unique_ptr<PageTaker> taker_of(Pages& pages) {
  return std::make_unique<PageTaker>(
      kSize, [&pages](std::uint64_t offset, std::uint64_t bytes) { return pages.take(offset, bytes); });
}

class PageTakerTest : public ::testing::Test {
 protected:
  const std::unique_ptr<exec::Executor> executor_ = exec::make_executor(3);
};

TEST_F(PageTakerTest, TakesEachPageOnce) {
  Pages pages;
  const auto taker = taker_of(pages);
  ASSERT_TRUE(taker->take(4096, std::uint64_t{40} << 20, *executor_));
  EXPECT_GE(pages.reach(), (std::uint64_t{40} << 20) + 4096);
  EXPECT_LT(pages.reach(), kSize) << "more than was asked for";
  taker->take_rest_in_background(2);
  taker->take_rest_in_background(2);
  ASSERT_TRUE(taker->take(0, kSize, *executor_));
  EXPECT_EQ(pages.reach(), kSize);
  ASSERT_TRUE(taker->take(0, kSize, *executor_));
  ASSERT_TRUE(taker->take(kSize, 0, *executor_));
}

TEST_F(PageTakerTest, TakesTheRestInTheBackground) {
  Pages pages;
  const auto taker = taker_of(pages);
  taker->take_rest_in_background(2);
  while (pages.reach() < kSize) ::usleep(100);  // a timeout of the test if it never ends
}

TEST_F(PageTakerTest, GivesTheErrorToTheCallThatNeedsThePages) {
  Pages pages;
  pages.left = 2;
  const auto taker = taker_of(pages);
  taker->take_rest_in_background(1);
  const auto failed = taker->take(0, kSize, *executor_);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind(), ErrorKind::resource_exhausted);
  {
    const std::lock_guard lock(pages.mutex);
    pages.left = 1000;
  }
  EXPECT_TRUE(taker->take(0, kSize, *executor_));
  EXPECT_EQ(pages.reach(), kSize);

  PageTaker throws(kSize, [](std::uint64_t, std::uint64_t) -> Result<void> { throw std::bad_alloc(); });
  throws.take_rest_in_background(2);
  EXPECT_EQ(throws.take(0, 1, *executor_).error().kind(), ErrorKind::resource_exhausted);
}

TEST_F(PageTakerTest, EndsWithTheWorkThatHasBegun) {
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
  // Seconds of work, of which nothing more begins.
  constexpr std::uint64_t kMuch = std::uint64_t{1} << 41;
  std::optional<PageTaker> taker(std::in_place, kMuch, [&](std::uint64_t, std::uint64_t) -> Result<void> {
    ++begun;
    ::usleep(100);
    ++ended;
    return {};
  });
  taker->take_rest_in_background(2);
  while (begun < 2) ::usleep(100);
  taker.reset();
  const int last = begun;
  EXPECT_EQ(ended, last);
  EXPECT_LT(static_cast<std::uint64_t>(last), kMuch >> 24);
  ::usleep(1000);
  EXPECT_EQ(begun, last);
}

TEST_F(PageTakerTest, LeavesMemoryThatIsPresent) {
  const auto memory = os::SharedMemory::create("test", kSize).value();
  const auto mapping = memory.map(os::MemoryAccess::read_write).value();
  mapping.prefer_huge_pages();
  PageTaker taker(kSize, [&](std::uint64_t offset, std::uint64_t bytes) { return mapping.populate(offset, bytes); });
  mapping.writable_bytes()[5000] = std::byte{7};
  taker.take_rest_in_background(2);
  ASSERT_TRUE(taker.take(0, kSize, *executor_));
  EXPECT_EQ(mapping.bytes()[5000], std::byte{7});
}

}  // namespace
}  // namespace bitsnap::engine
