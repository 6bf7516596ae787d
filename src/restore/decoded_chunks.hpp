// Chunks that were decoded a moment ago, for whoever reads the same ones again at once: the states of a chain, of which
// each is coded against the one before.
//
// Belongs to one thread at a time; a ReadContext may carry one. Holds copies, up to a number of bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::restore {

class DecodedChunks {
 public:
  explicit DecodedChunks(std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Forgets all, and keeps the memory.
  void clear() noexcept {
    used_ = 0;
    used_bytes_ = 0;
  }

  // The chunk if it is held; `snapshot` is what it belongs to.
  [[nodiscard]] bool get(const void* snapshot, std::size_t stream, std::uint64_t chunk, ByteSpan out) const noexcept {
    for (std::size_t i = 0; i < used_; ++i) {
      const Entry& entry = entries_[i];
      if (entry.snapshot != snapshot || entry.stream != stream || entry.chunk != chunk) continue;
      if (entry.size_bytes != out.size()) return false;
      std::memcpy(out.data(), entry.bytes.data(), out.size());
      return true;
    }
    return false;
  }

  void put(const void* snapshot, std::size_t stream, std::uint64_t chunk, ConstByteSpan bytes) {
    if (bytes.size() > limit_bytes_ - used_bytes_) return;
    if (used_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[used_];
    entry.snapshot = snapshot;
    entry.stream = stream;
    entry.chunk = chunk;
    entry.size_bytes = bytes.size();
    if (entry.bytes.size() < bytes.size()) entry.bytes.resize(bytes.size());
    std::memcpy(entry.bytes.data(), bytes.data(), bytes.size());
    ++used_;
    used_bytes_ += bytes.size();
  }

 private:
  struct Entry {
    const void* snapshot = nullptr;
    std::size_t stream = 0;
    std::uint64_t chunk = 0;
    std::size_t size_bytes = 0;
    std::vector<std::byte> bytes;  // at least that many
  };

  const std::uint64_t limit_bytes_;
  std::vector<Entry> entries_;  // the first `used_` hold something
  std::size_t used_ = 0;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace bitsnap::restore
