// Which decoded chunks are cached, and which are evicted.
#include "restore/decoded_chunks.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace bitsnap::restore {
namespace {

using Bytes = std::vector<std::byte>;

Bytes filled(std::size_t size, int value) { return Bytes(size, static_cast<std::byte>(value)); }

bool holds(DecodedChunks& chunks, const ChunkKey& key, const Bytes& expected) {
  const DecodedChunks::Entry* const entry = chunks.find(key);
  return entry != nullptr && entry->size_bytes == expected.size() &&
         std::memcmp(entry->bytes.get(), expected.data(), expected.size()) == 0;
}

TEST(DecodedChunks, FindsEntriesByTheWholeKey) {
  DecodedChunks chunks(1000);
  chunks.put({1, 2, 3}, 7, filled(10, 1));
  EXPECT_TRUE(holds(chunks, {1, 2, 3}, filled(10, 1)));
  EXPECT_EQ(chunks.find({1, 2, 3})->steps_below, 7U);
  EXPECT_EQ(chunks.hits(), 2U);
  EXPECT_EQ(chunks.find({2, 2, 3}), nullptr);
  EXPECT_EQ(chunks.find({1, 1, 3}), nullptr);
  EXPECT_EQ(chunks.find({1, 2, 4}), nullptr);
  EXPECT_EQ(chunks.hits(), 2U);
  chunks.put({1, 2, 3}, 0, filled(20, 2));
  EXPECT_TRUE(holds(chunks, {1, 2, 3}, filled(20, 2)));
}

TEST(DecodedChunks, EvictsTheLeastRecentlyUsed) {
  DecodedChunks chunks(300);
  for (std::uint64_t i = 1; i <= 3; ++i) chunks.put({i, 0, 0}, 0, filled(100, static_cast<int>(i)));
  EXPECT_TRUE(holds(chunks, {1, 0, 0}, filled(100, 1)));
  chunks.put({4, 0, 0}, 0, filled(100, 4));
  EXPECT_EQ(chunks.find({2, 0, 0}), nullptr);
  for (const std::uint64_t kept : {1U, 3U, 4U}) {
    EXPECT_TRUE(holds(chunks, {kept, 0, 0}, filled(100, static_cast<int>(kept))));
  }
}

TEST(DecodedChunks, NeverHoldsMoreThanItsLimit) {
  DecodedChunks chunks(1000);
  std::uint64_t state = 1;
  for (std::uint64_t i = 1; i < 2000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const Bytes bytes = filled(1 + (state >> 33) % 1100, static_cast<int>(i % 251));
    chunks.put({i, 0, 0}, 0, bytes);
    ASSERT_LE(chunks.held_bytes(), 1000U);
    ASSERT_EQ(holds(chunks, {i, 0, 0}, bytes), bytes.size() <= 1000U) << bytes.size();
    if (i % 97 == 0) chunks.clear();
  }
}

TEST(DecodedChunks, IgnoresChunksThatAreTooLarge) {
  DecodedChunks chunks(100);
  chunks.put({1, 0, 0}, 0, filled(60, 1));
  chunks.put({2, 0, 0}, 0, filled(101, 2));
  EXPECT_EQ(chunks.find({2, 0, 0}), nullptr);
  EXPECT_TRUE(holds(chunks, {1, 0, 0}, filled(60, 1)));
}

TEST(DecodedChunks, ReusesItsMemoryAfterClear) {
  DecodedChunks chunks(1000);
  for (std::uint64_t i = 1; i <= 4; ++i) chunks.put({i, 0, 0}, 0, filled(100, 1));
  chunks.clear();
  for (std::uint64_t i = 1; i <= 4; ++i) EXPECT_EQ(chunks.find({i, 0, 0}), nullptr);
  for (std::uint64_t i = 1; i <= 4; ++i) chunks.put({i, 0, 0}, 0, filled(50, 2));
  EXPECT_EQ(chunks.held_bytes(), 400U);
}

}  // namespace
}  // namespace bitsnap::restore
