// Eviction: the next chunk reuses the least recently used buffer if that is large enough.
#include "restore/decoded_chunks.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace bitsnap::restore {

const DecodedChunks::Entry* DecodedChunks::find(const ChunkKey& key) noexcept {
  for (Entry& entry : entries_) {
    if (!(entry.key == key)) continue;
    entry.used_at = ++clock_;
    ++hits_;
    return &entry;
  }
  return nullptr;
}

void DecodedChunks::clear() noexcept {
  for (Entry& entry : entries_) entry.key = {};
}

// Free memory that was used before is fastest, then memory that was never used, then that of the oldest entry.
DecodedChunks::Entry* DecodedChunks::make_room(std::size_t size_bytes) {
  for (;;) {
    Entry* oldest = nullptr;
    for (Entry& entry : entries_) {
      const bool is_free = entry.key.snapshot == 0;
      if (is_free && entry.capacity_bytes >= size_bytes) return &entry;
      if (is_free) entry.used_at = 0;
      if (oldest == nullptr || entry.used_at < oldest->used_at) oldest = &entry;
    }
    if (entries_.size() < kMostEntries && size_bytes <= limit_bytes_ - held_bytes_) {
      Entry entry;
      entry.bytes.reset(new (std::nothrow) std::byte[size_bytes]);
      if (entry.bytes == nullptr) return nullptr;
      entry.capacity_bytes = size_bytes;
      held_bytes_ += size_bytes;
      return &entries_.emplace_back(std::move(entry));
    }
    if (oldest->capacity_bytes >= size_bytes) return oldest;
    held_bytes_ -= oldest->capacity_bytes;
    entries_.erase(entries_.begin() + (oldest - entries_.data()));
  }
}

void DecodedChunks::put(const ChunkKey& key, std::uint32_t steps_below, ConstByteSpan bytes) {
  if (bytes.size() > limit_bytes_) return;
  const auto known = std::ranges::find(entries_, key, &Entry::key);
  if (known != entries_.end()) known->key = {};
  Entry* const entry = make_room(bytes.size());
  if (entry == nullptr) return;
  entry->key = key;
  entry->steps_below = steps_below;
  entry->size_bytes = bytes.size();
  entry->used_at = ++clock_;
  std::memcpy(entry->bytes.get(), bytes.data(), bytes.size());
}

}  // namespace bitsnap::restore
