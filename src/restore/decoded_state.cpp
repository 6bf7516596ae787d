// Finds the bytes of each stream in memory, and copies chunks.
#include "restore/decoded_state.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "restore/snapshot_impl.hpp"

namespace bitsnap::restore {

DecodedState::DecodedState(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors,
                           std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), streams_(snapshot.streams().size()) {
  const container::Index& index = Snapshot::Impl::of(snapshot).index();
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

DecodedState::DecodedState(const Snapshot& snapshot, std::vector<StreamBuffer> streams)
    : buffers_(std::move(streams)), streams_(snapshot.streams().size()) {
  for (std::size_t i = 0; i < std::min(streams_.size(), buffers_.size()); ++i) {
    const StreamInfo& info = snapshot.streams()[i];
    streams_[i] = {ConstByteSpan(buffers_[i].bytes.get(), static_cast<std::size_t>(buffers_[i].size_bytes)),
                   static_cast<std::size_t>(kChunkElements) * element_size(info.dtype)};
  }
}

void DecodedState::put(const Snapshot& snapshot, std::size_t stream, ConstByteSpan bytes) {
  if (snapshot.quantizer(stream)) return;
  const StreamInfo& info = snapshot.streams()[stream];
  streams_[stream] = {bytes, static_cast<std::size_t>(kChunkElements) * element_size(info.dtype)};
}

bool DecodedState::is_complete() const {
  const std::shared_lock lock(mutex_);
  return !streams_.empty() &&
         std::ranges::all_of(streams_, [](const Stream& stream) { return stream.chunk_bytes != 0; });
}

std::uint64_t DecodedState::own_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const StreamBuffer& buffer : buffers_) bytes += buffer.size_bytes;
  return bytes;
}

void DecodedState::release() {
  const std::lock_guard lock(mutex_);
  streams_.clear();
  pool_ = {};
  owner_.reset();
}

std::vector<StreamBuffer> DecodedState::take_buffers() {
  release();
  return std::exchange(buffers_, {});
}

bool DecodedState::copy_chunk(std::size_t stream, std::uint64_t chunk, ByteSpan out) const {
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

bool DecodedState::copy_own(std::size_t stream, std::uint64_t offset, ByteSpan out) const {
  if (!is_own()) return false;
  const std::shared_lock lock(mutex_);
  if (stream >= streams_.size()) return false;
  const ConstByteSpan bytes = streams_[stream].bytes;
  if (offset > bytes.size() || out.size() > bytes.size() - offset) return false;
  std::memcpy(out.data(), bytes.data() + offset, out.size());
  return true;
}

}  // namespace bitsnap::restore
