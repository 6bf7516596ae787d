// The arena that trainer and agent share, and the book that each of them keeps of its slots: docs/spec/engine.md, "The
// arena".
//
// Everything that reads from an Arena shares ownership of it; its members do not change. A SlotBook belongs to the side
// that keeps it, which guards it by its own lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "engine/slot_layout.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::engine {

struct Arena {
  os::SharedMemory memory;
  os::MappedMemory mapping;
  std::uint32_t slots = 0;
  std::uint64_t slot_bytes = 0;

  [[nodiscard]] std::uint64_t offset_of(std::uint32_t slot) const noexcept { return kSlotUnit + slot * slot_bytes; }
  [[nodiscard]] ConstByteSpan slot(std::uint32_t number) const noexcept { return part(mapping.bytes(), number); }
  // Empty if this process mapped the arena for reading only.
  [[nodiscard]] ByteSpan writable_slot(std::uint32_t number) const noexcept {
    return part(mapping.writable_bytes(), number);
  }

 private:
  template <typename Span>
  [[nodiscard]] Span part(Span all, std::uint32_t slot) const noexcept {
    return all.subspan(static_cast<std::size_t>(offset_of(slot)), static_cast<std::size_t>(slot_bytes));
  }
};

enum class SlotUse : std::uint8_t {
  free,     // the trainer may write to it
  filling,  // the trainer copies a state into it; the agent still takes it for free
  staged,   // the agent has a state there that it has not encoded, as far as this side knows
  held,     // the agent has encoded the state, and keeps it there
};

// Which slot is in use for what, as one side knows it. `Content` is what that side knows of the state in a slot that is
// in use. A free slot has no content.
template <typename Content>
class SlotBook {
 public:
  // The book of another arena, all of whose slots are free.
  void begin(std::size_t slots) { slots_ = std::vector<Slot>(slots); }

  [[nodiscard]] std::size_t size() const noexcept { return slots_.size(); }
  // Precondition of all functions with a `slot`: it is below size().
  [[nodiscard]] SlotUse use(std::uint32_t slot) const { return slots_[slot].use; }
  [[nodiscard]] const Content& content(std::uint32_t slot) const { return slots_[slot].content; }

  // Precondition: `use` is not free.
  void put(std::uint32_t slot, SlotUse use, Content content = {}) { slots_[slot] = {use, std::move(content)}; }
  // Returns what the slot had.
  Content free(std::uint32_t slot) { return std::exchange(slots_[slot], {}).content; }

  [[nodiscard]] std::size_t count(SlotUse use) const {
    return static_cast<std::size_t>(std::ranges::count(slots_, use, &Slot::use));
  }
  // The first slot with this use whose content has the property.
  template <typename Property>
  [[nodiscard]] std::optional<std::uint32_t> find(SlotUse use, const Property& property) const {
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].use == use && property(slots_[i].content)) return i;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint32_t> find(SlotUse use) const {
    return find(use, [](const Content&) { return true; });
  }

 private:
  struct Slot {
    SlotUse use = SlotUse::free;
    Content content = {};
  };
  std::vector<Slot> slots_;
};

}  // namespace bitsnap::engine
