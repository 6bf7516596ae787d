// Groups come from one pass over the streams by rank, the order from a counting sort.
#include "restore/chunk_groups.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "container/chunk_table.hpp"

namespace bitsnap::restore {
namespace {

// The most chunks of a batch: enough that few chunks of a flat buffer are needed by two batches, few enough that they
// fit into the cache and that all threads get work.
constexpr std::size_t kBatchChunks = 16;
constexpr std::size_t kBatchGroups = 4;

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

}  // namespace

ChunkGroups::ChunkGroups(std::span<const OrderedStream> streams, Needs needs) {
  std::vector<std::size_t> first_chunk;
  for (const OrderedStream& stream : streams) {
    first_chunk.push_back(chunks_);
    chunks_ += static_cast<std::size_t>(stream.chunks);
  }
  std::vector<std::size_t> by_rank(streams.size());
  std::iota(by_rank.begin(), by_rank.end(), std::size_t{0});
  std::ranges::sort(by_rank, {}, [&](std::size_t i) { return std::pair(streams[i].rank, i); });

  std::vector<std::size_t> groups(chunks_, kNone);  // by chunk
  std::vector<std::size_t> sizes;                   // by group
  std::vector<bool> needs_earlier;                  // by group: whether it needs earlier groups, usually the last one
  bool has_needs = false;
  for (const std::size_t stream : by_rank) {
    for (std::uint64_t chunk = 0; chunk < streams[stream].chunks; ++chunk) {
      std::size_t last = kNone;
      std::size_t first = kNone;
      needs(stream, chunk, [&](std::size_t other, std::uint64_t needed) {
        const std::size_t group = groups[first_chunk[other] + static_cast<std::size_t>(needed)];
        if (group == kNone) return;
        last = last == kNone ? group : std::max(last, group);
        first = std::min(first, group);
      });
      if (last == kNone) {
        last = sizes.size();
        sizes.push_back(0);
        needs_earlier.push_back(false);
      } else {
        has_needs = true;
        if (first < last) needs_earlier[last] = true;
      }
      groups[first_chunk[stream] + static_cast<std::size_t>(chunk)] = last;
      ++sizes[last];
    }
  }
  if (!has_needs) return;

  std::vector<std::size_t> next(sizes.size());  // by group: the position of its next chunk
  std::exclusive_scan(sizes.begin(), sizes.end(), next.begin(), std::size_t{0});
  order_.resize(chunks_);
  places_.resize(chunks_);
  for (const std::size_t stream : by_rank) {
    for (std::size_t i = 0; i < streams[stream].chunks; ++i) {
      const std::size_t chunk = first_chunk[stream] + i;
      const std::size_t place = next[groups[chunk]]++;
      order_[place] = chunk;
      places_[chunk] = place;
    }
  }

  std::size_t end = 0;
  std::size_t groups_in_batch = 0;
  for (std::size_t group = 0; group < sizes.size(); ++group) {
    const std::size_t begin = end;
    end += sizes[group];
    const bool continues = group > 0 && needs_earlier[group] && groups_in_batch < kBatchGroups &&
                           end - first_place_.back() <= kBatchChunks;
    groups_in_batch = continues ? groups_in_batch + 1 : 1;
    if (!continues) first_place_.push_back(begin);
    // Many chunks may need the same one.
    while (end - first_place_.back() > kBatchChunks) first_place_.push_back(first_place_.back() + kBatchChunks);
  }
  first_place_.push_back(end);
}

ChunkGroups::Batch ChunkGroups::batch(std::size_t number) const noexcept {
  if (first_place_.empty()) return {number, number + 1};
  return {first_place_[number], first_place_[number + 1]};
}

std::size_t ChunkGroups::batch_at(std::size_t place) const noexcept {
  if (first_place_.empty()) return place;
  return static_cast<std::size_t>(std::ranges::upper_bound(first_place_, place) - first_place_.begin()) - 1;
}

void for_each_peer(const container::Index& index, std::size_t stream, std::uint64_t chunk,
                   ChunkGroups::NeededChunk needed) {
  const container::ChunkEntry& entry =
      index.chunks[static_cast<std::size_t>(index.streams.first_chunk[stream] + chunk)];
  for (const std::uint8_t number : entry.inputs) {
    if (number == container::kNoInput) break;
    const container::StreamInput& input = index.encoding.streams[stream].inputs[number];
    if (input.base) continue;
    const container::ChunkRange range = container::touched_chunks(input, index.streams.streams[stream], chunk);
    for (std::uint64_t at = range.first; at <= range.last; ++at) needed(static_cast<std::size_t>(input.stream), at);
  }
}

ChunkGroups group_chunks(const container::Index& index) {
  std::vector<OrderedStream> streams;
  for (std::size_t i = 0; i < index.streams.streams.size(); ++i) {
    streams.push_back({index.encoding.streams[i].rank, index.streams.streams[i].chunk_count()});
  }
  return {streams, [&](std::size_t stream, std::uint64_t chunk, ChunkGroups::NeededChunk needed) {
            for_each_peer(index, stream, chunk, needed);
          }};
}

}  // namespace bitsnap::restore
