// StateKeeper: allocates the buffers of a state, and copies the stored bytes into them.
#include "store/state_keeper.hpp"

#include <cstring>
#include <new>

#include "base/try.hpp"

namespace bitsnap::store {

Result<void> StateKeeper::begin(std::span<const StreamInfo> streams) {
  std::uint64_t total = 0;
  for (const StreamInfo& stream : streams) total += stream.elements * element_size(stream.dtype);
  if (total > limit_bytes_) {
    spare_.clear();
    return {};
  }
  std::vector<StreamBuffer> buffers(streams.size());
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const std::uint64_t size = streams[i].elements * element_size(streams[i].dtype);
    if (i < spare_.size() && spare_[i].size_bytes == size) {
      buffers[i] = std::move(spare_[i]);
      continue;
    }
    buffers[i].bytes.reset(new (std::nothrow) std::byte[size]);
    buffers[i].size_bytes = size;
    if (buffers[i].bytes == nullptr) return {};  // without memory, saves read the base from its file
  }
  spare_.clear();
  streams_ = std::move(buffers);
  return {};
}

void StateKeeper::take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept {
  if (stream >= streams_.size()) return;
  StreamBuffer& buffer = streams_[stream];
  if (offset_bytes > buffer.size_bytes || bytes.size() > buffer.size_bytes - offset_bytes) return;
  std::memcpy(buffer.bytes.get() + offset_bytes, bytes.data(), bytes.size());
}

}  // namespace bitsnap::store
