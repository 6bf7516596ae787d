#include "engine/slot_chunks.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "restore/snapshot_impl.hpp"

namespace bitsnap::engine {

SlotChunks::SlotChunks(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors,
                       std::shared_ptr<const void> mapping)
    : mapping_(std::move(mapping)), streams_(snapshot.streams().size()) {
  const container::Index& index = SnapshotAccess::impl(snapshot).index();
  const std::size_t count = std::min(snapshot.tensors().size(), tensors.size());
  pool_.resize(static_cast<std::size_t>(index.content.pool_bytes));
  for (std::size_t i = 0; i < count; ++i) {
    if (tensors[i].empty() || tensors[i].size() != snapshot.tensors()[i].size_bytes) continue;
    if (const auto offset = index.content.pool_offsets[i]) {
      std::memcpy(pool_.data() + *offset, tensors[i].data(), tensors[i].size());
    } else if (const auto stream = snapshot.stream_of(i)) {
      put(snapshot, *stream, tensors[i]);
    }
  }
  if (index.streams.pool) put(snapshot, *index.streams.pool, pool_);
}

void SlotChunks::put(const Snapshot& snapshot, std::size_t stream, ConstByteSpan bytes) {
  if (snapshot.quantizer(stream)) return;
  const StreamInfo& info = snapshot.streams()[stream];
  streams_[stream] = {bytes, static_cast<std::size_t>(kChunkElements) * element_size(info.dtype)};
}

bool SlotChunks::is_complete() const {
  const std::shared_lock lock(mutex_);
  return !streams_.empty() &&
         std::ranges::all_of(streams_, [](const Stream& stream) { return stream.chunk_bytes != 0; });
}

void SlotChunks::release() {
  const std::lock_guard lock(mutex_);
  streams_.clear();
  pool_ = {};
  mapping_.reset();
}

bool SlotChunks::copy(std::size_t stream, std::uint64_t chunk, ByteSpan out) const {
  const std::shared_lock lock(mutex_);
  if (stream >= streams_.size()) return false;
  const auto& [bytes, chunk_bytes] = streams_[stream];
  if (chunk_bytes == 0 || chunk > bytes.size() / chunk_bytes) return false;
  const auto begin = static_cast<std::size_t>(chunk) * chunk_bytes;
  if (out.size() != std::min(chunk_bytes, bytes.size() - begin)) return false;
  std::memcpy(out.data(), bytes.data() + begin, out.size());
  found_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void SlotChunks::note_mismatch(std::size_t /*stream*/, std::uint64_t /*chunk*/) const noexcept {
  mismatches_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace bitsnap::engine
