// Tests of returning pages to the system.
#include "os/memory.hpp"

#include <gtest/gtest.h>

#include <cstring>

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

TEST(Pages, AreNullWithoutMemory) { EXPECT_EQ(allocate_pages(SIZE_MAX / 2), nullptr); }

}  // namespace
}  // namespace bitsnap::os
