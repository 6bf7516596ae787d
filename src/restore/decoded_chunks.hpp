// A cache of recently decoded chunks, for tensors that depend on each other and for the states of a chain.
//
// Holds copies up to a number of bytes and evicts the least recently used. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::restore {

// A chunk of an open snapshot. `snapshot` numbers its opening, from 1 on; an address could be reused.
struct ChunkKey {
  std::uint64_t snapshot = 0;
  std::size_t stream = 0;
  std::uint64_t chunk = 0;

  friend bool operator==(const ChunkKey&, const ChunkKey&) = default;
};

class DecodedChunks {
 public:
  struct Entry {
    ChunkKey key;                   // of snapshot 0 where there is none
    std::uint32_t steps_below = 0;  // the longest path from this chunk to one that it depends on
    std::size_t size_bytes = 0;
    std::size_t capacity_bytes = 0;
    std::unique_ptr<std::byte[]> bytes;
    std::uint64_t used_at = 0;
  };

  explicit DecodedChunks(std::uint64_t limit_bytes) noexcept : limit_bytes_(limit_bytes) {}

  // nullptr if it is not cached; valid until the next put().
  [[nodiscard]] const Entry* find(const ChunkKey& key) noexcept;

  // Caches a copy, unless it exceeds the limit or there is no memory for it.
  void put(const ChunkKey& key, std::uint32_t steps_below, ConstByteSpan bytes);

  // Drops all entries and keeps their memory.
  void clear() noexcept;

  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }

 private:
  // An entry of that size to overwrite; nullptr without memory. Precondition: the size is within the limit.
  [[nodiscard]] Entry* make_room(std::size_t size_bytes);

  // Few enough for linear search.
  static constexpr std::size_t kMostEntries = 64;

  const std::uint64_t limit_bytes_;
  std::vector<Entry> entries_;
  std::uint64_t held_bytes_ = 0;  // capacities of all entries
  std::uint64_t clock_ = 0;
  std::uint64_t hits_ = 0;
};

}  // namespace bitsnap::restore
