// Tests of returning pages to the system.
#include "os/memory.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "os/forked_child_testing.hpp"
#include "os/spare_pages_testing.hpp"

namespace bitsnap::os {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;

TEST(Pages, ReturnToTheSystemWhenFreed) {
  const std::uint64_t before = process_memory()->anonymous_bytes;
  Pages pages = allocate_pages(kBytes);
  ASSERT_NE(pages, nullptr);
  EXPECT_EQ(pages[kBytes - 1], std::byte{0});
  std::memset(pages.get(), 1, kBytes);
  // Linux counts some pages of a process late, and a sanitizer's own records take an eighth.
  EXPECT_GE(process_memory()->anonymous_bytes, before + kBytes * 9 / 10);
  shrink_pages(pages, kBytes / 4 + 1);
  EXPECT_EQ(pages[kBytes / 4], std::byte{1});
  EXPECT_LT(process_memory()->anonymous_bytes, before + kBytes / 2);
  shrink_pages(pages, kBytes);  // has no effect at the same size
  pages.reset();
  EXPECT_LT(process_memory()->anonymous_bytes, before + kBytes / 4);
}

// How many of the pages have the byte that all were filled with.
std::size_t pages_with(const Pages& pages, std::byte byte) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < kBytes; at += page_size_bytes()) count += pages[at] == byte ? 1U : 0U;
  return count;
}

TEST(SparePages, StayUntilTheSystemTakesThem) {
  const Pages pages = allocate_spare_pages(kBytes);
  ASSERT_NE(pages, nullptr);
  const std::size_t all = kBytes / page_size_bytes();
  std::memset(pages.get(), 1, kBytes);
  offer_pages(pages.get() + 1, kBytes / 2);  // without the first page, and the last half one
  EXPECT_EQ(pages_with(pages, std::byte{1}), all);
  take_offered_pages();
  EXPECT_EQ(pages_with(pages, std::byte{1}), all / 2 + 1);
  EXPECT_EQ(pages_with(pages, std::byte{0}), all / 2 - 1);
  EXPECT_EQ(pages[0], std::byte{1});
  EXPECT_EQ(pages[page_size_bytes()], std::byte{0});
  // What is written again stays.
  std::memset(pages.get(), 2, kBytes);
  take_offered_pages();
  EXPECT_EQ(pages_with(pages, std::byte{2}), all);
}

TEST(SparePages, AreZerosInAForkedChild) {
  const Pages pages = allocate_spare_pages(kBytes);
  std::memset(pages.get(), 1, kBytes);
  EXPECT_EQ(returned_by_child([&] { return pages_with(pages, std::byte{0}) == kBytes / page_size_bytes() ? 1 : 2; }),
            1);
  EXPECT_EQ(pages[0], std::byte{1});
}

TEST(Pages, AreNullWithoutMemory) { EXPECT_EQ(allocate_pages(SIZE_MAX / 2), nullptr); }

}  // namespace
}  // namespace bitsnap::os
