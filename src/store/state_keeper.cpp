// StateKeeper: allocates memory for a state, copies the stored bytes into it, and offers it to the system.
#include "store/state_keeper.hpp"

#include <algorithm>
#include <cstring>

namespace bitsnap::store {

Result<void> StateKeeper::begin(std::span<const StreamInfo> streams) {
  std::uint64_t total = 0;
  for (const StreamInfo& stream : streams) total += stream.elements * element_size(stream.dtype);
  // A save may begin again, without its base.
  streams_.clear();
  KeptState earlier = std::exchange(kept_, {});
  std::shared_ptr<os::Pages> memory = std::exchange(earlier.is_empty() ? spare_ : earlier.memory, nullptr);
  if (total == 0 || total > limit_bytes_) return {};
  // Memory that the system would take back at once costs time and gains none.
  if (total >= kAskedBytes) {
    const auto available = probe_();
    if (available && available->available_bytes / 2 < total + available->free_bytes() / 2) return {};
  }
  if (memory == nullptr || memory->get_deleter().size_bytes != total) {
    memory = nullptr;  // before there is more
    os::Pages pages = os::allocate_spare_pages(static_cast<std::size_t>(total));
    if (pages == nullptr) return {};  // without memory, saves read the base from its file
    memory = std::make_shared<os::Pages>(std::move(pages));
  }
  ByteSpan left(memory->get(), static_cast<std::size_t>(total));
  for (const StreamInfo& stream : streams) {
    const auto size = static_cast<std::size_t>(stream.elements * element_size(stream.dtype));
    streams_.push_back(left.first(size));
    kept_.streams.push_back(left.data());
    left = left.subspan(size);
  }
  kept_.memory = std::move(memory);
  written_ = std::vector<std::atomic<std::size_t>>(piece_of(kept_.memory->get() + total - 1) + 1);
  return {};
}

void StateKeeper::take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept {
  if (stream >= streams_.size()) return;
  const ByteSpan own = streams_[stream];
  if (offset_bytes > own.size() || bytes.size() > own.size() - offset_bytes) return;
  std::byte* to = own.data() + offset_bytes;
  std::memcpy(to, bytes.data(), bytes.size());
  for (std::byte* const end = to + bytes.size(); to != end;) {
    const std::size_t in_piece = reinterpret_cast<std::uintptr_t>(to) % os::kOfferedBytes;
    const auto size = std::min(os::kOfferedBytes - in_piece, static_cast<std::size_t>(end - to));
    const std::size_t before = written_[piece_of(to)].fetch_add(size, std::memory_order_acq_rel);
    if (before + size == os::kOfferedBytes) os::offer_pages(to - in_piece, os::kOfferedBytes);
    to += size;
  }
}

std::size_t StateKeeper::piece_of(const std::byte* at) const noexcept {
  const auto number = [](const std::byte* byte) { return reinterpret_cast<std::uintptr_t>(byte) / os::kOfferedBytes; };
  return number(at) - number(kept_.memory->get());
}

KeptState StateKeeper::release() noexcept {
  streams_.clear();
  if (!kept_.is_empty()) os::offer_pages(kept_.memory->get(), kept_.memory->get_deleter().size_bytes);
  return std::exchange(kept_, {});
}

}  // namespace bitsnap::store
