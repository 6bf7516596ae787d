// The order of chunks: each after its inputs, in batches of a bounded size.
#include "restore/chunk_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace bitsnap::restore {
namespace {

using Chunk = std::pair<std::size_t, std::uint64_t>;  // stream, chunk
using Needs = std::map<Chunk, std::vector<Chunk>>;

ChunkGroups group(const std::vector<OrderedStream>& streams, const Needs& needs) {
  return {streams, [&](std::size_t stream, std::uint64_t chunk, ChunkGroups::NeededChunk needed) {
            const auto found = needs.find({stream, chunk});
            if (found == needs.end()) return;
            for (const auto& [other, at] : found->second) needed(other, at);
          }};
}

std::vector<std::vector<std::size_t>> batches_of(const ChunkGroups& groups) {
  std::vector<std::vector<std::size_t>> batches;
  for (std::size_t i = 0; i < groups.batches(); ++i) {
    const auto [begin, end] = groups.batch(i);
    batches.emplace_back();
    for (std::size_t place = begin; place < end; ++place) {
      EXPECT_EQ(groups.batch_at(place), i);
      EXPECT_EQ(groups.place_of(groups.chunk_at(place)), place);
      batches.back().push_back(groups.chunk_at(place));
    }
  }
  return batches;
}

using Batches = std::vector<std::vector<std::size_t>>;

TEST(ChunkGroups, KeepTheOrderWithoutDependences) {
  EXPECT_EQ(batches_of(group({{0, 2}, {1, 1}, {0, 1}}, {})), (Batches{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(group({}, {}).batches(), 0U);
}

TEST(ChunkGroups, PlaceAChunkRightAfterItsInputs) {
  // Weight (0, 1), another tensor (2), master (3, 4).
  const Needs needs{{{0, 0}, {{2, 0}}}, {{0, 1}, {{2, 1}}}};
  EXPECT_EQ(batches_of(group({{1, 2}, {0, 1}, {0, 2}}, needs)), (Batches{{2}, {3, 0}, {4, 1}}));
}

TEST(ChunkGroups, PutIndirectDependencesIntoOneBatch) {
  // Weight, master, square, mean, of one chunk each.
  const Needs needs{{{0, 0}, {{1, 0}}}, {{1, 0}, {{3, 0}, {2, 0}}}, {{2, 0}, {{3, 0}}}};
  EXPECT_EQ(batches_of(group({{3, 1}, {2, 1}, {1, 1}, {0, 1}}, needs)), (Batches{{3, 2, 1, 0}}));
}

TEST(ChunkGroups, BatchSlicesOfAFlatBufferWithTheirLastInput) {
  // Stream 0 is the buffer, each chunk of stream 1 needs two of it.
  Needs needs;
  for (std::uint64_t i = 0; i < 9; ++i) needs[{1, i}] = {{0, i}, {0, i + 1}};
  const Batches batches = batches_of(group({{0, 10}, {0, 9}}, needs));
  EXPECT_EQ(batches, (Batches{{0, 1, 10, 2, 11, 3, 12}, {4, 13, 5, 14, 6, 15, 7, 16}, {8, 17, 9, 18}}));
}

TEST(ChunkGroups, SplitManyDependentsOfOneChunkIntoBatches) {
  Needs needs;
  for (std::uint64_t i = 0; i < 100; ++i) needs[{1, i}] = {{0, 0}};
  const Batches batches = batches_of(group({{0, 1}, {0, 100}}, needs));
  std::vector<std::size_t> all;
  for (const auto& batch : batches) {
    EXPECT_LE(batch.size(), 16U);
    all.insert(all.end(), batch.begin(), batch.end());
  }
  std::vector<std::size_t> expected(101);
  std::iota(expected.begin(), expected.end(), std::size_t{0});
  EXPECT_EQ(all, expected);
}

TEST(ChunkGroups, IgnoreInputsThatDoNotComeBefore) {
  // Two streams that need each other, as they may in two snapshots.
  const Needs needs{{{0, 0}, {{1, 0}}}, {{1, 0}, {{0, 0}}}};
  EXPECT_EQ(batches_of(group({{0, 1}, {0, 1}}, needs)), (Batches{{0, 1}}));
}

}  // namespace
}  // namespace bitsnap::restore
