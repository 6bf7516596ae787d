// Finds the bytes of each stream in memory, and copies chunks.
#include "restore/decoded_state.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "restore/snapshot_impl.hpp"

namespace bitsnap::restore {

DecodedState::DecodedState(const Snapshot& snapshot, std::span<const ConstByteSpan> tensors,
                           std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), streams_(snapshot.streams().size()) {
  const container::Index& index = Snapshot::Impl::of(snapshot).index();
  const std::size_t count = std::min(snapshot.tensors().size(), tensors.size());
  std::uint64_t pooled_bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (tensors[i].empty() || tensors[i].size() != snapshot.tensors()[i].size_bytes) continue;
    if (const auto offset = index.content.pool_offsets[i]) {
      if (*offset != pooled_bytes) continue;
      pooled_.push_back({*offset, tensors[i]});
      pooled_bytes += tensors[i].size();
    } else if (const auto stream = snapshot.stream_of(i)) {
      put(snapshot, *stream, tensors[i].data());
    }
  }
  pooled_.shrink_to_fit();
  if (index.streams.pool && pooled_bytes == index.content.pool_bytes) put(snapshot, *index.streams.pool, nullptr);
}

DecodedState::DecodedState(const Snapshot& snapshot, const std::vector<const std::byte*>& streams,
                           std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), streams_(snapshot.streams().size()) {
  for (std::size_t i = 0; i < std::min(streams_.size(), streams.size()); ++i) {
    streams_[i] = stream_of(snapshot, i, streams[i]);
  }
}

DecodedState::Stream DecodedState::stream_of(const Snapshot& snapshot, std::size_t stream, const std::byte* bytes) {
  const StreamInfo& info = snapshot.streams()[stream];
  return {bytes, info.elements * element_size(info.dtype),
          static_cast<std::size_t>(kChunkElements) * element_size(info.dtype)};
}

void DecodedState::put(const Snapshot& snapshot, std::size_t stream, const std::byte* bytes) {
  if (!snapshot.quantizer(stream)) streams_[stream] = stream_of(snapshot, stream, bytes);
}

void DecodedState::gather(std::uint64_t offset, ByteSpan out) const {
  for (auto from = std::ranges::upper_bound(pooled_, offset, {}, &Pooled::offset) - 1; !out.empty(); ++from) {
    const ConstByteSpan bytes = from->bytes.subspan(static_cast<std::size_t>(offset - from->offset));
    const std::size_t size = std::min(bytes.size(), out.size());
    std::memcpy(out.data(), bytes.data(), size);
    out = out.subspan(size);
    offset += size;
  }
}

bool DecodedState::is_complete() const {
  const std::shared_lock lock(mutex_);
  return !streams_.empty() &&
         std::ranges::all_of(streams_, [](const Stream& stream) { return stream.chunk_bytes != 0; });
}

void DecodedState::release() {
  const std::lock_guard lock(mutex_);
  streams_.clear();
  pooled_ = {};
  owner_.reset();
}

bool DecodedState::copy_chunk(std::size_t stream, std::uint64_t chunk, ByteSpan out) const {
  const std::shared_lock lock(mutex_);
  if (stream >= streams_.size()) return false;
  const auto& [bytes, size_bytes, chunk_bytes] = streams_[stream];
  if (chunk_bytes == 0 || chunk > size_bytes / chunk_bytes) return false;
  const std::uint64_t begin = chunk * chunk_bytes;
  if (out.empty() || out.size() != std::min<std::uint64_t>(chunk_bytes, size_bytes - begin)) return false;
  if (bytes == nullptr) {
    gather(begin, out);
  } else {
    std::memcpy(out.data(), bytes + begin, out.size());
  }
  found_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool DecodedState::copy_part(std::size_t stream, std::uint64_t offset, ByteSpan out) const {
  const std::shared_lock lock(mutex_);
  if (stream >= streams_.size() || out.empty()) return false;
  const auto& [bytes, size_bytes, chunk_bytes] = streams_[stream];
  if (bytes == nullptr || chunk_bytes == 0 || offset > size_bytes || out.size() > size_bytes - offset) return false;
  std::memcpy(out.data(), bytes + offset, out.size());
  return true;
}

}  // namespace bitsnap::restore
