// StateKeeper: gathers the bytes that a save stores, so that the next save reads its base from memory instead of
// decoding it. Owns the buffers until release(). Several threads may call take() at once, for different bytes; no other
// calls may overlap.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "restore/decoded_state.hpp"
#include "save/state_tap.hpp"

namespace bitsnap::store {

using restore::StreamBuffer;

class StateKeeper final : public save::StateTap {
 public:
  // Keeps nothing if the state is larger than `limit_bytes`. Reuses the buffers in `spare` whose sizes fit, because
  // memory that was touched before is faster.
  StateKeeper(std::uint64_t limit_bytes, std::vector<StreamBuffer> spare)
      : limit_bytes_(limit_bytes), spare_(std::move(spare)) {}

  Result<void> begin(std::span<const StreamInfo> streams) override;
  void take(std::size_t stream, std::uint64_t offset_bytes, ConstByteSpan bytes) noexcept override;

  // Returns the gathered bytes after the save; empty if the limit or the memory did not allow it.
  [[nodiscard]] std::vector<StreamBuffer> release() noexcept { return std::move(streams_); }

 private:
  const std::uint64_t limit_bytes_;
  std::vector<StreamBuffer> spare_;
  std::vector<StreamBuffer> streams_;
};

}  // namespace bitsnap::store
