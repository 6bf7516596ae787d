// StateKeeper: gathers the bytes that a save stores, so that the next save reads its base from memory instead of
// decoding it. The system may take the memory back at any time, so whoever reads it compares hashes. Several threads
// may call take() at once, for different bytes; no other calls may overlap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "os/memory.hpp"
#include "os/memory_limit.hpp"
#include "save/state_tap.hpp"

namespace bitsnap::store {

// The stored bytes of a state.
struct KeptState {
  std::shared_ptr<os::Pages> memory;
  std::vector<const std::byte*> streams;  // where each begins

  [[nodiscard]] bool is_empty() const noexcept { return memory == nullptr; }
};

class StateKeeper final : public save::StateTap {
 public:
  // Keeps nothing if the state is larger than `limit_bytes`, or if twice the state is more than the system can spare.
  // Reuses `spare`, which nobody else uses, if it fits, because memory that was touched before is faster.
  StateKeeper(std::uint64_t limit_bytes, std::shared_ptr<os::Pages> spare, os::MemoryProbe probe)
      : limit_bytes_(limit_bytes), probe_(std::move(probe)), spare_(std::move(spare)) {}

  Result<void> begin(std::span<const StreamInfo> streams) override;
  void take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept override;

  // Returns the gathered bytes after the save, all offered to the system; empty if the limit or the memory did not
  // allow it.
  [[nodiscard]] KeptState release() noexcept;

 private:
  // A state of fewer bytes is kept without asking the system, which takes longer.
  static constexpr std::uint64_t kAskedBytes = std::uint64_t{1} << 22;

  // The number of the huge page that has this byte, of those that the memory touches.
  [[nodiscard]] std::size_t piece_of(const std::byte* at) const noexcept;

  const std::uint64_t limit_bytes_;
  const os::MemoryProbe probe_;
  std::shared_ptr<os::Pages> spare_;
  KeptState kept_;
  std::vector<ByteSpan> streams_;                  // in the memory of `kept_`
  std::vector<std::atomic<std::size_t>> written_;  // bytes of each huge page; one that is full is offered
};

}  // namespace bitsnap::store
