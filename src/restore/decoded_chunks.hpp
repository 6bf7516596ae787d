// Chunks that were decoded a moment ago, for whoever needs the same ones again at once: tensors that depend on each
// other, and the states of a chain.
//
// Holds copies, up to a number of bytes; what was used longest ago makes room. Belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::restore {

// A chunk of an opened snapshot. The number is of this opening, from 1 on: an address may be used again.
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

  // nullptr where it is not held; valid until the next put().
  [[nodiscard]] const Entry* find(const ChunkKey& key) noexcept;

  // Keeps a copy, unless it is larger than the limit or there is no memory for it.
  void put(const ChunkKey& key, std::uint32_t steps_below, ConstByteSpan bytes);

  // Forgets all, and keeps the memory.
  void clear() noexcept;

  [[nodiscard]] std::uint64_t held_bytes() const noexcept { return held_bytes_; }
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_; }

 private:
  // An entry with so much memory, to be overwritten; nullptr if it cannot be had. Precondition: it is within the limit.
  [[nodiscard]] Entry* make_room(std::size_t size_bytes);

  // Looking something up compares it with each of them.
  static constexpr std::size_t kMostEntries = 64;

  const std::uint64_t limit_bytes_;
  std::vector<Entry> entries_;
  std::uint64_t held_bytes_ = 0;  // capacities of all entries
  std::uint64_t clock_ = 0;
  std::uint64_t hits_ = 0;
};

}  // namespace bitsnap::restore
