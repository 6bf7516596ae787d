// RankSlots: the arena of one rank as its agent sees it, and the state in each slot.
//
// The rank owns it and guards it by its lock. At most one slot is held: the one whose state was encoded last. The base
// cache hears from this class which snapshot a held slot can restore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

#include "base/bytes.hpp"
#include "engine/arena.hpp"
#include "engine/messages.hpp"
#include "os/file_system.hpp"
#include "restore/decoded_state.hpp"
#include "store/base_cache.hpp"

namespace bitsnap::engine {

// A snapshot file without its payloads: the header, the index and the footer. With the decoded state of
// a slot, it is all that a restore needs. Immutable after read().
struct SnapshotFrame {
  std::uint64_t file_bytes = 0;
  std::uint64_t index_offset = 0;
  std::vector<std::byte> header;
  std::vector<std::byte> index;  // and footer: the file from `index_offset` on

  [[nodiscard]] static Result<SnapshotFrame> read(const os::RandomAccessFile& file);
};

// The state in a slot. Of a staged slot, only the step is known.
struct SlotState {
  std::uint64_t step = 0;
  SnapshotId id = {};
  std::string attempt = {};
  std::shared_ptr<restore::DecodedState> chunks = {};
  // Set if the slot holds the complete state. The state can then be restored without the payloads and bases.
  std::shared_ptr<const SnapshotFrame> frame = {};
  std::uint64_t raw_bytes = 0;
};

class RankSlots {
 public:
  explicit RankSlots(store::BaseCache& cache) : cache_(cache) {}

  // Another arena takes the place of the present one, whatever that holds. busy while a state is staged.
  [[nodiscard]] Result<void> replace(os::SharedMemory memory, const ArenaOffer& offer);
  // nullptr before the first arena.
  [[nodiscard]] const std::shared_ptr<const Arena>& arena() const noexcept { return arena_; }
  [[nodiscard]] std::size_t size() const noexcept { return book_.size(); }
  [[nodiscard]] std::size_t free_count() const { return book_.count(SlotUse::free); }
  // For `welcome`.
  [[nodiscard]] std::vector<HeldSlot> view() const;

  [[nodiscard]] Result<void> stage(const Staged& staged);
  // The staged state is encoded, and stays.
  void hold(std::uint32_t slot, SlotState state);
  void free(std::uint32_t slot);

  [[nodiscard]] std::optional<std::uint32_t> held() const { return book_.find(SlotUse::held); }
  [[nodiscard]] const SlotState& state(std::uint32_t slot) const { return book_.content(slot); }
  // The held slot, if its state is complete.
  [[nodiscard]] std::optional<std::uint32_t> restorable() const;

 private:
  store::BaseCache& cache_;
  std::shared_ptr<const Arena> arena_;
  SlotBook<SlotState> book_;
};

}  // namespace bitsnap::engine
