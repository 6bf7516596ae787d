// The decoded bytes of a snapshot in memory, so that whoever reads the snapshot copies from there instead of decoding.
//
// The memory is either the object's own, which holds what was stored, or somebody else's, who may write over it at any
// time, as a trainer does with a slot. A chunk that is copied from foreign memory is used only if its hash is the one
// in the file: where it is not, the chunk is decoded, so that reading is right whatever the memory holds. Thread-safe
// but for take_buffers().
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
  // In foreign memory. `tensors`: the bytes of each tensor, empty for those that are not there; `owner` keeps them. The
  // pool, whose tensors lie apart, is put together here. Streams that a quantizer changed before they were stored are
  // left out: what was stored is not what lies there.
  DecodedState(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors, std::shared_ptr<const void> owner);
  // In own memory: all streams of `snapshot`, as they were stored.
  DecodedState(const Snapshot& snapshot, std::vector<StreamBuffer> streams);
  DecodedState(const DecodedState&) = delete;
  DecodedState& operator=(const DecodedState&) = delete;

  // Whether no stream is left out.
  [[nodiscard]] bool is_complete() const;
  [[nodiscard]] bool is_own() const noexcept { return !buffers_.empty(); }
  [[nodiscard]] std::uint64_t own_bytes() const noexcept;

  // Fills `out`, which has the chunk's size; false where the chunk is not there.
  [[nodiscard]] bool copy_chunk(std::size_t stream, std::uint64_t chunk, ByteSpan out) const;
  // Fills `out` with the bytes of a stream from an offset on; false where they are not there, or the memory is foreign.
  [[nodiscard]] bool copy_own(std::size_t stream, std::uint64_t offset, ByteSpan out) const;
  // Counts a chunk that was copied and had another hash.
  void note_mismatch() const noexcept { mismatches_.fetch_add(1, std::memory_order_relaxed); }

  // Nothing is found any more, and foreign memory may be written. Waits for those who copy.
  void release();
  // The memory, for another state. Nobody reads from this one any more.
  [[nodiscard]] std::vector<StreamBuffer> take_buffers();

  [[nodiscard]] std::uint64_t found() const noexcept { return found_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t mismatches() const noexcept { return mismatches_.load(std::memory_order_relaxed); }

 private:
  struct Stream {
    ConstByteSpan bytes;
    std::size_t chunk_bytes = 0;  // 0: left out
  };

  void put(const Snapshot& snapshot, std::size_t stream, ConstByteSpan bytes);

  std::vector<StreamBuffer> buffers_;  // own memory
  mutable std::shared_mutex mutex_;    // of the next three, which are there until release()
  std::shared_ptr<const void> owner_;
  std::vector<std::byte> pool_;
  std::vector<Stream> streams_;
  mutable std::atomic<std::uint64_t> found_ = 0;
  mutable std::atomic<std::uint64_t> mismatches_ = 0;
};

}  // namespace bitsnap::restore
