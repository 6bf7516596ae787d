// Gathering a state and reading from it.
#include "store/kept_state.hpp"

#include <cstring>
#include <new>

#include <fmt/format.h>

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
    if (buffers[i].bytes == nullptr) return {};  // without memory the file is the base
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

Result<void> KeptState::read_elements(std::size_t stream, std::uint64_t first, std::span<std::byte> out,
                                      ReadContext& /*context*/) const {
  if (stream >= streams_.size()) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: no stream {} is kept", name(), stream));
  }
  const StreamBuffer& buffer = streams_[stream];
  const std::uint64_t offset = first * element_size(streams()[stream].dtype);
  if (offset > buffer.size_bytes || out.size() > buffer.size_bytes - offset) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: {} bytes from element {} leave stream {}", name(), out.size(), first, stream));
  }
  std::memcpy(out.data(), buffer.bytes.get() + offset, out.size());
  return {};
}

}  // namespace bitsnap::store
