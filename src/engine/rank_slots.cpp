#include "engine/rank_slots.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/file_reader.hpp"

namespace bitsnap::engine {

Result<SnapshotFrame> SnapshotFrame::read(const os::RandomAccessFile& file) {
  BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(file));
  SnapshotFrame frame{.file_bytes = file.size_bytes(), .index_offset = footer.index_offset, .header = {}, .index = {}};
  frame.header.resize(container::kHeaderBytes);
  frame.index.resize(static_cast<std::size_t>(frame.file_bytes - frame.index_offset));
  BITSNAP_TRY(file.read_at(0, frame.header));
  BITSNAP_TRY(file.read_at(frame.index_offset, frame.index));
  return frame;
}

Result<void> RankSlots::replace(os::SharedMemory memory, const ArenaOffer& offer) {
  const std::uint64_t expected = kSlotUnit + offer.slots * offer.slot_bytes;
  const bool is_round = offer.slot_bytes > 0 && offer.slot_bytes % kSlotUnit == 0;
  if (!is_round || expected / std::max<std::uint64_t>(offer.slot_bytes, 1) < offer.slots ||
      memory.size_bytes() != expected) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("arena of {0} bytes for {1} slots of {2} bytes: the size of a slot must be a multiple of "
                            "{3}, and the arena must have {3} bytes more than its slots",
                            memory.size_bytes(), offer.slots, offer.slot_bytes, kSlotUnit));
  }
  if (const auto staged = book_.find(SlotUse::staged)) {
    return fail(ErrorKind::busy,
                fmt::format("the current arena is in use: step {} is waiting to be encoded or being encoded",
                            state(*staged).step));
  }
  BITSNAP_ASSIGN(os::MappedMemory mapping, memory.map(os::MemoryAccess::read));
  if (const auto slot = held()) free(*slot);
  arena_ = std::make_shared<const Arena>(Arena{std::move(memory), std::move(mapping), offer.slots, offer.slot_bytes});
  book_.begin(offer.slots);
  return {};
}

std::vector<HeldSlot> RankSlots::view() const {
  std::vector<HeldSlot> slots;
  for (std::uint32_t i = 0; i < book_.size(); ++i) {
    slots.push_back({.is_held = book_.use(i) != SlotUse::free, .step = state(i).step});
  }
  return slots;
}

Result<void> RankSlots::stage(const Staged& staged) {
  const auto refuse = [](std::string why) { return fail(ErrorKind::invalid_argument, std::move(why)); };
  if (staged.slot >= size()) return refuse(fmt::format("slot must be below {}, got {}", size(), staged.slot));
  if (book_.use(staged.slot) != SlotUse::free) {
    return refuse(fmt::format("slot {} is still in use for step {}", staged.slot, state(staged.slot).step));
  }
  if (staged.bytes > arena_->slot_bytes) {
    return refuse(fmt::format("cannot stage {} bytes in a slot of {} bytes", staged.bytes, arena_->slot_bytes));
  }
  book_.put(staged.slot, SlotUse::staged, {.step = staged.step});
  return {};
}

void RankSlots::hold(std::uint32_t slot, SlotState state) {
  cache_.set_restorable(state.frame != nullptr ? std::optional(state.id) : std::nullopt);
  book_.put(slot, SlotUse::held, std::move(state));
}

void RankSlots::free(std::uint32_t slot) {
  const SlotState before = book_.free(slot);
  if (before.chunks != nullptr) before.chunks->release();
  if (before.frame != nullptr) cache_.set_restorable(std::nullopt);
}

std::optional<std::uint32_t> RankSlots::restorable() const {
  return book_.find(SlotUse::held, [](const SlotState& state) { return state.frame != nullptr; });
}

}  // namespace bitsnap::engine
