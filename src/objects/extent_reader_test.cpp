// Extents of ranges, and readers of them: every range is read right, in any order, with any fault and little memory.
#include "objects/extent_reader.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bitsnap::objects {
namespace {

using os::FileRange;

std::vector<std::pair<std::uint64_t, std::uint64_t>> offsets_and_sizes(const std::vector<FileRange>& ranges) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
  for (const Extent& extent : extents_of(ranges, std::uint64_t{8} << 20))
    found.emplace_back(extent.offset, extent.size);
  return found;
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs(
    std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> all) {
  return all;
}

TEST(Extents, NeighboursAreOne) {
  EXPECT_EQ(offsets_and_sizes({{100, 50}, {150, 50}, {200, 1}}), pairs({{100, 101}}));
  EXPECT_EQ(offsets_and_sizes({}), pairs({}));
  EXPECT_EQ(offsets_and_sizes({{5, 0}}), pairs({}));
  EXPECT_EQ(offsets_and_sizes({{100, 50}, {100, 50}}), pairs({{100, 50}}));  // two chunks share their bytes
}

TEST(Extents, GapsCostAnEighthAtMost) {
  EXPECT_EQ(offsets_and_sizes({{0, 800}, {900, 800}}), pairs({{0, 1700}}));
  EXPECT_EQ(offsets_and_sizes({{0, 800}, {901, 800}}), pairs({{0, 800}, {901, 800}}));
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<FileRange> ranges;
    std::uint64_t at = 0;
    std::uint64_t wanted = 0;
    for (int i = 0; i < 50; ++i) {
      at += random() % 3 == 0 ? random() % (1 << 18) : random() % (1 << 12);
      ranges.push_back({at, 1 + random() % (1 << 20)});
      at += ranges.back().size;
      wanted += ranges.back().size;
    }
    std::uint64_t read = 0;
    for (const Extent& extent : extents_of(ranges, std::uint64_t{8} << 20)) {
      read += extent.size;
      EXPECT_LE(extent.size, std::uint64_t{8} << 20);
    }
    EXPECT_GE(read, wanted);
    EXPECT_LE(read, wanted + wanted / 8);
  }
}

TEST(Extents, ComeInTheOrderOfTheirFirstUse) {
  EXPECT_EQ(offsets_and_sizes({{900'000, 10}, {0, 10}, {500'000, 10}}), pairs({{900'000, 10}, {0, 10}, {500'000, 10}}));
}

TEST(Extents, WhatIsNeededAtDifferentTimesIsNotOne) {
  std::vector<FileRange> ranges;  // first the even pieces of the object, then the odd ones
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1}}) {
    for (std::uint64_t i = 0; i < 50; ++i) ranges.push_back({(2 * i + first) * 1000, 1000});
  }
  EXPECT_EQ(offsets_and_sizes(ranges).size(), 100);
}

class AnObject {
 public:
  explicit AnObject(std::size_t size) : bytes_(size) {
    std::mt19937_64 random(2);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
  }
  Result<void> read(std::uint64_t offset, ByteSpan out) {
    const std::uint64_t request = ++requests;
    if (fails_every > 0 && request % fails_every == 0) return fail(ErrorKind::io, "no answer");
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  [[nodiscard]] bool has(const FileRange& range, ConstByteSpan found) const {
    return std::memcmp(bytes_.data() + range.offset, found.data(), found.size()) == 0;
  }
  std::atomic<std::uint64_t> requests = 0;
  std::uint64_t fails_every = 0;

 private:
  std::vector<std::byte> bytes_;
};

// Reads all ranges in the order of `order` on some threads. Returns how many reads were made alone.
std::uint64_t read_all(AnObject& object, const std::vector<FileRange>& ranges, const std::vector<std::size_t>& order,
                       std::uint64_t most_bytes, std::size_t thread_count) {
  ExtentReader reader([&](std::uint64_t offset, ByteSpan out) { return object.read(offset, out); }, ranges, most_bytes);
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> alone = 0;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < thread_count; ++thread) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < order.size(); i = next++) {
        const FileRange& range = ranges[order[i]];
        std::vector<std::byte> found(static_cast<std::size_t>(range.size));
        if (!reader.take(range.offset, found)) {
          ++alone;
          continue;
        }
        EXPECT_TRUE(object.has(range, found)) << range.offset;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return alone;
}

std::vector<FileRange> drawn_ranges(std::mt19937_64& random, std::size_t object_bytes) {
  std::vector<FileRange> ranges;
  for (std::uint64_t at = 0;;) {
    at += random() % 2 == 0 ? 0 : random() % 30'000;
    const std::uint64_t size = 1 + random() % 100'000;
    if (at + size > object_bytes) return ranges;
    ranges.push_back({at, size});
    at += size;
  }
}

TEST(ExtentReader, ReadsEveryRangeOnceInAnyOrder) {
  AnObject object(20 << 20);
  std::mt19937_64 random(3);
  for (const std::uint64_t most_bytes : {std::uint64_t{1}, std::uint64_t{1} << 20, std::uint64_t{128} << 20}) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<FileRange> ranges = drawn_ranges(random, 20 << 20);
      std::vector<std::size_t> order(ranges.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      if (round % 3 == 1) std::ranges::reverse(order);
      if (round % 3 == 2) std::ranges::shuffle(order, random);
      object.requests = 0;
      const std::uint64_t alone = read_all(object, ranges, order, most_bytes, 1 + random() % 4);
      // With room, each extent is one request.
      EXPECT_LE(object.requests, extents_of(ranges, std::min(most_bytes, std::uint64_t{8} << 20)).size());
      const bool has_room = most_bytes >= std::uint64_t{64} << 20;
      EXPECT_TRUE(!has_room || object.requests + alone <= extents_of(ranges, std::uint64_t{8} << 20).size());
    }
  }
}

TEST(ExtentReader, LeavesToItsCallerWhatFails) {
  AnObject object(20 << 20);
  std::mt19937_64 random(4);
  for (object.fails_every = 1; object.fails_every < 8; ++object.fails_every) {
    const std::vector<FileRange> ranges = drawn_ranges(random, 20 << 20);
    std::vector<std::size_t> order(ranges.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::uint64_t alone = read_all(object, ranges, order, std::uint64_t{16} << 20, 3);
    EXPECT_GT(alone, 0);
    EXPECT_TRUE(object.fails_every > 1 || alone == ranges.size());
  }
}

TEST(ExtentReader, KnowsNothingElse) {
  AnObject object(1 << 20);
  ExtentReader reader([&](std::uint64_t offset, ByteSpan out) { return object.read(offset, out); },
                      std::vector<FileRange>{{1000, 100}, {1100, 100}}, 1 << 20);
  std::vector<std::byte> out(100);
  EXPECT_FALSE(reader.take(0, out));
  EXPECT_FALSE(reader.take(950, out));
  EXPECT_FALSE(reader.take(1150, out));
  EXPECT_TRUE(reader.take(1000, out));
  EXPECT_TRUE(reader.take(1100, out));
  EXPECT_FALSE(reader.take(1100, out));  // read, and forgotten
  EXPECT_EQ(object.requests, 1);
}

TEST(ExtentReader, EndsWithoutItsReaders) {
  AnObject object(20 << 20);
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    const ExtentReader reader([&](std::uint64_t offset, ByteSpan out) { return object.read(offset, out); },
                              drawn_ranges(random, 20 << 20), 1 << 20);
  }
}

TEST(ExtentReader, KeepsToItsMemory) {
  AnObject object(64 << 20);
  std::vector<FileRange> ranges;
  for (std::uint64_t at = 0; at < 64; ++at) ranges.push_back({at << 20, 1 << 18});
  ExtentReader reader([&](std::uint64_t offset, ByteSpan out) { return object.read(offset, out); }, ranges, 4 << 20);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(object.requests, 16);  // of 256 KiB
  std::vector<std::byte> out(1 << 18);
  for (const FileRange& range : ranges) {
    EXPECT_TRUE(!reader.take(range.offset, out) || object.has(range, out));
  }
}

}  // namespace
}  // namespace bitsnap::objects
