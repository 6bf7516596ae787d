// The most recently decoded pool chunks: each holds thousands of tiny tensors, which are often read one by one.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace bitsnap::restore {

class PoolCache {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;

  // nullptr if it is not cached.
  [[nodiscard]] Bytes find(std::uint64_t chunk) {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.bytes && entry.chunk == chunk) return entry.bytes;
    }
    return nullptr;
  }

  // Replaces the oldest entry. No lock is held while a chunk is decoded, because decoding may lead into another
  // snapshot's pool and back; so two threads may decode the same chunk.
  void put(std::uint64_t chunk, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    entries_[next_] = Entry{chunk, std::move(bytes)};
    next_ = (next_ + 1) % entries_.size();
  }

 private:
  // A pool chunk has 256 KiB.
  static constexpr std::size_t kChunks = 8;

  struct Entry {
    std::uint64_t chunk = 0;
    Bytes bytes;
  };

  std::mutex mutex_;
  std::array<Entry, kChunks> entries_;
  std::size_t next_ = 0;
};

}  // namespace bitsnap::restore
