// The decoded bytes of a snapshot in memory: a read copies chunks from there instead of decoding them.
//
// The memory is either owned, and then holds the stored bytes, or foreign, such as a slot of the arena, which the
// trainer may overwrite at any time. The reader compares the hash of each chunk that it copied from foreign memory with
// the hash in the file, and decodes the chunk if they differ. Thread-safe except for take_buffers().
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

// The bytes of one stream.
struct StreamBuffer {
  std::unique_ptr<std::byte[]> bytes;
  std::uint64_t size_bytes = 0;
};

class DecodedState {
 public:
  // Foreign memory. `tensors`: the bytes of each tensor, empty if absent; `owner` keeps them alive. The pool is left
  // out if one of its tensors is absent. Quantized streams are left out, because the memory holds the bytes before
  // quantizing.
  DecodedState(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors, std::shared_ptr<const void> owner);
  // Owned memory: the stored bytes of all streams.
  DecodedState(const Snapshot& snapshot, std::vector<StreamBuffer> streams);
  DecodedState(const DecodedState&) = delete;
  DecodedState& operator=(const DecodedState&) = delete;

  // Whether all streams are there.
  [[nodiscard]] bool is_complete() const;
  [[nodiscard]] bool is_own() const noexcept { return !buffers_.empty(); }
  [[nodiscard]] std::uint64_t own_bytes() const noexcept;

  // Fills `out`, which has the chunk's size; false if the chunk is absent.
  [[nodiscard]] bool copy_chunk(std::size_t stream, std::uint64_t chunk, ByteSpan out) const;
  // Fills `out` with the bytes of a stream from `offset` on; false if they are absent or the memory is foreign.
  [[nodiscard]] bool copy_own(std::size_t stream, std::uint64_t offset, ByteSpan out) const;
  // Counts a copied chunk whose hash differed.
  void note_mismatch() const noexcept { mismatches_.fetch_add(1, std::memory_order_relaxed); }

  // Waits for copies that are running. Afterwards nothing is found, and foreign memory may be reused.
  void release();
  // Returns the owned memory for reuse. Precondition: no other thread uses this object.
  [[nodiscard]] std::vector<StreamBuffer> take_buffers();

  [[nodiscard]] std::uint64_t found() const noexcept { return found_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t mismatches() const noexcept { return mismatches_.load(std::memory_order_relaxed); }

 private:
  struct Stream {
    const std::byte* bytes = nullptr;  // nullptr: gathered from `pooled_`
    std::uint64_t size_bytes = 0;
    std::size_t chunk_bytes = 0;  // 0: left out
  };
  // A tensor of the pool in foreign memory. The pool may be as large as the state, so it is gathered chunk by chunk.
  struct Pooled {
    std::uint64_t offset = 0;
    ConstByteSpan bytes;
  };

  void put(const Snapshot& snapshot, std::size_t stream, const std::byte* bytes);
  // Precondition: the range lies within the pool.
  void gather(std::uint64_t offset, ByteSpan out) const;

  std::vector<StreamBuffer> buffers_;  // owned memory
  mutable std::shared_mutex mutex_;    // protects the next three, which release() clears
  std::shared_ptr<const void> owner_;
  std::vector<Pooled> pooled_;  // without gaps, by offset
  std::vector<Stream> streams_;
  mutable std::atomic<std::uint64_t> found_ = 0;
  mutable std::atomic<std::uint64_t> mismatches_ = 0;
};

}  // namespace bitsnap::restore
