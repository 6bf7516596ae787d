// The decoded bytes of a snapshot in memory: a read copies chunks from there instead of decoding them.
//
// The memory may change at any time: a trainer overwrites a slot of the arena, and the system takes back pages that
// were offered to it. So the reader compares the hash of each chunk that it copied with the hash in the file, and
// decodes the chunk if they differ. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <span>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"

namespace bitsnap::restore {

class DecodedState {
 public:
  // `tensors`: the bytes of each tensor, empty if absent; `owner` keeps them alive. The pool is left out if one of its
  // tensors is absent. Quantized streams are left out, because the memory holds the bytes before quantizing.
  DecodedState(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors, std::shared_ptr<const void> owner);
  // `streams`: where the stored bytes of each stream begin.
  DecodedState(const Snapshot& snapshot, const std::vector<const std::byte*>& streams,
               std::shared_ptr<const void> owner);
  DecodedState(const DecodedState&) = delete;
  DecodedState& operator=(const DecodedState&) = delete;

  // Whether all streams are there.
  [[nodiscard]] bool is_complete() const;

  // Fills `out`, which has the chunk's size; false if the chunk is absent.
  [[nodiscard]] bool copy_chunk(std::size_t stream, std::uint64_t chunk, ByteSpan out) const;
  // Fills `out` with bytes of a stream from `offset` on, which nothing checks; false if they are absent.
  [[nodiscard]] bool copy_part(std::size_t stream, std::uint64_t offset, ByteSpan out) const;
  // Counts a copied chunk whose hash differed.
  void note_mismatch() const noexcept { mismatches_.fetch_add(1, std::memory_order_relaxed); }

  // Waits for copies that are running. Afterwards nothing is found, and the memory may be reused.
  void release();

  [[nodiscard]] std::uint64_t found() const noexcept { return found_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t mismatches() const noexcept { return mismatches_.load(std::memory_order_relaxed); }

 private:
  struct Stream {
    const std::byte* bytes = nullptr;  // nullptr: gathered from `pooled_`
    std::uint64_t size_bytes = 0;
    std::size_t chunk_bytes = 0;  // 0: left out
  };
  // A tensor of the pool. The pool may be as large as the state, so it is gathered chunk by chunk.
  struct Pooled {
    std::uint64_t offset = 0;
    ConstByteSpan bytes;
  };

  [[nodiscard]] static Stream stream_of(const Snapshot& snapshot, std::size_t stream, const std::byte* bytes);
  void put(const Snapshot& snapshot, std::size_t stream, const std::byte* bytes);
  // Precondition: the range lies within the pool.
  void gather(std::uint64_t offset, ByteSpan out) const;

  mutable std::shared_mutex mutex_;  // protects the next three, which release() clears
  std::shared_ptr<const void> owner_;
  std::vector<Pooled> pooled_;  // without gaps, by offset
  std::vector<Stream> streams_;
  mutable std::atomic<std::uint64_t> found_ = 0;
  mutable std::atomic<std::uint64_t> mismatches_ = 0;
};

}  // namespace bitsnap::restore
