// A slot of the arena as the warm chunks of the snapshot that was made of it. Whoever reads that snapshot copies from
// the slot what is still there; see restore/warm_chunks.hpp for why nothing can go wrong.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <span>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "restore/warm_chunks.hpp"

namespace bitsnap::engine {

class SlotChunks final : public restore::WarmChunks {
 public:
  // `tensors`: where they lie, as tensor_bytes() gives it; `mapping` keeps that memory. The pool, which lies nowhere in
  // one piece, is put together here. Streams that lost something before they were stored are not what lies in the
  // slot: they are left out.
  SlotChunks(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors, std::shared_ptr<const void> mapping);

  // Whether nothing was left out.
  [[nodiscard]] bool is_complete() const;
  // The slot is going to be written: nothing is found any more, and its memory is let go. Waits for those who copy.
  void release();
  // How many chunks were asked for and found, and how many of them were something else by then.
  [[nodiscard]] std::uint64_t found() const noexcept { return found_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t mismatches() const noexcept { return mismatches_.load(std::memory_order_relaxed); }

  bool copy(std::size_t stream, std::uint64_t chunk, ByteSpan out) const override;
  void note_mismatch(std::size_t stream, std::uint64_t chunk) const noexcept override;

 private:
  struct Stream {
    ConstByteSpan bytes;
    std::size_t chunk_bytes = 0;
  };

  void put(const Snapshot& snapshot, std::size_t stream, ConstByteSpan bytes);

  mutable std::shared_mutex mutex_;  // of the next three, which are there until the slot is released
  std::shared_ptr<const void> mapping_;
  std::vector<std::byte> pool_;
  std::vector<Stream> streams_;
  mutable std::atomic<std::uint64_t> found_ = 0;
  mutable std::atomic<std::uint64_t> mismatches_ = 0;
};

}  // namespace bitsnap::engine
