// TrainerSaves: the saves of one trainer, how far each has come, and the slots of the arena that hold their states.
//
// The trainer owns it and guards it by its lock. A save has a slot until the agent says that the slot is free. If the
// agent dies, what is still in a slot is handed to the next one; any other unfinished save is lost: only the store
// knows whether it was persisted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <bitsnap/engine.hpp>

#include "engine/arena.hpp"
#include "engine/messages.hpp"

namespace bitsnap::engine {

struct TrainerSave {
  SaveState state;
  std::optional<std::uint32_t> slot;  // the slot that still holds the state
  std::uint64_t bytes = 0;            // bytes used in the slot
  std::uint64_t link = 0;             // number of the link that staged it last
  bool is_new = false;                // a checkpoint of this step can only come from this save
  bool was_told = false;              // an agent was told of it and may have accepted it
  int agents_died = 0;                // agents that died while they had it
  std::optional<Error> lost = {};     // set if the agent died and no slot holds the state: persisted or lost

  // The message that hands it to an agent.
  [[nodiscard]] Staged staged() const;
};

class TrainerSaves {
 public:
  // After this many agents died while they had a save, the save fails: it may be the cause. Each try starts an agent.
  static constexpr int kMostAgents = 10;
  static constexpr std::size_t kMaxRemembered = 1024;  // saves that are over, which find() still finds
  static constexpr std::size_t kMaxFailures = 256;

  // The first ticket is the one after `ticket`.
  explicit TrainerSaves(std::uint64_t ticket) : last_ticket_(ticket) {}

  [[nodiscard]] std::uint64_t next_ticket() noexcept { return ++last_ticket_; }
  // Records a save with its ticket; its slot, if it has one, is staged.
  void add(TrainerSave save);
  // nullptr for an unknown ticket. Valid until the next call of add() or take_back().
  [[nodiscard]] TrainerSave* find(std::uint64_t ticket);
  // Forgets a save that no agent has, and frees its slot.
  void take_back(std::uint64_t ticket);
  // The agent has refused the save: frees its slot.
  void refuse(TrainerSave& save, Error error);
  // Ends all unfinished saves.
  void end_all(const Error& error);
  [[nodiscard]] std::size_t unfinished() const;
  [[nodiscard]] std::vector<SaveState> take_failures() { return std::exchange(failures_, {}); }

  // What the agent reports.
  void apply(const ProgressEvent& event);
  // The agent is gone.
  void lose(const Error& error);
  [[nodiscard]] bool has_lost() const;
  // Ends the lost saves: as persisted if the store, which has these steps, has them; as failed otherwise.
  void settle_lost(std::span<const std::uint64_t> steps);
  // What the next agent gets: the unfinished saves that are in a slot.
  [[nodiscard]] std::vector<Staged> hand_over_again();

  // Another arena, without any state; or none.
  void begin_arena(std::size_t slots);
  // A new link: slots that its agent frees are known from adopt_arena() on.
  void begin_link() { early_frees_.clear(); }
  // The arena of an earlier trainer, in which the agent holds these slots.
  void adopt_arena(std::span<const HeldSlot> slots);
  [[nodiscard]] bool has_free_slot() const { return slots_.find(SlotUse::free).has_value(); }
  [[nodiscard]] std::vector<std::uint32_t> free_slots() const;
  // A free slot, which the trainer fills from now on.
  [[nodiscard]] std::optional<std::uint32_t> fill_slot();
  void free_slot(std::uint32_t slot);
  // Whether the agent has not encoded a state that is in a slot; and whether a slot has the state of a save that is not
  // over.
  [[nodiscard]] bool is_encoding() const;
  [[nodiscard]] bool needs_arena() const;

 private:
  void end_with(TrainerSave& save, Error error);

  std::uint64_t last_ticket_;
  std::map<std::uint64_t, TrainerSave> saves_;
  std::vector<SaveState> failures_;
  // The ticket of the state in a slot, unless an earlier trainer staged it.
  SlotBook<std::optional<std::uint64_t>> slots_;
  std::vector<std::uint32_t> early_frees_;  // slots freed right after `welcome`, before adopt_arena()
};

}  // namespace bitsnap::engine
