// TrainerArena: the arena of a trainer: how many slots the memory allows, the pages that it has, and what else uses
// each slot: a device that copies into it, and restored snapshots that read from it.
//
// The trainer owns it, and calls it on the thread that saves or restores. note() and size_bytes() may be called from
// any thread. Restored snapshots share ownership of the Arena itself.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/engine.hpp>

#include "engine/arena.hpp"
#include "engine/fetched_snapshots.hpp"
#include "engine/messages.hpp"
#include "engine/page_taker.hpp"
#include "exec/executor.hpp"
#include "os/memory_limit.hpp"
#include "restore/decoded_state.hpp"

namespace bitsnap::engine {

class TrainerArena {
 public:
  // How much of a new arena is present when the agent gets it.
  enum class Pages : std::uint8_t { of_a_slot, all };
  // An arena that the agent does not have yet.
  struct Made {
    std::shared_ptr<Arena> arena;
    std::unique_ptr<PageTaker> pages;
  };

  // `options` and `executor` outlive this object.
  TrainerArena(const EngineOptions& options, exec::Executor& executor, const os::MemoryProbe& memory)
      : options_(options), executor_(executor), memory_(memory), wanted_slots_(options.memory.slots) {}

  // nullptr: there is none.
  [[nodiscard]] const std::shared_ptr<Arena>& get() const noexcept { return arena_; }
  // Whether the present arena serves for this state.
  [[nodiscard]] bool fits(const SlotPlan& plan);
  // Chooses the number of slots: one, if there is not enough memory for more. resource_exhausted if there is not enough
  // for one.
  [[nodiscard]] Result<void> choose_slots(const SlotPlan& plan);
  [[nodiscard]] bool has_fewer_slots() const noexcept { return wanted_slots_ < options_.memory.slots; }
  // An arena for this state. Its pages are taken before the agent gets it, so that a failure leaves nothing allocated,
  // unless there is memory for it only without the present arena.
  [[nodiscard]] Result<Made> make(const SlotPlan& plan, Pages pages);
  // The agent has the arena, and takes the place of the present one.
  void replace(Made made);
  // Uses what the last trainer left, whose pages are allocated; false if this trainer cannot.
  [[nodiscard]] bool adopt(os::Descriptor descriptor, const Welcome& welcome);
  void drop();

  // Takes the pages that make() did not.
  [[nodiscard]] Result<void> take_missing_pages(Pages pages);
  [[nodiscard]] Result<void> take_pages(std::uint32_t slot);
  // Half of the threads take the rest, as the training goes on.
  void take_rest_in_background();
  // Prepares a slot, whose pages are present, for the copies of the state's device, unless this was done before.
  void pin(std::uint32_t slot, const State& state);
  // A restored snapshot reads from the slot.
  void read_by(std::uint32_t slot, std::weak_ptr<restore::DecodedState> chunks,
               std::weak_ptr<const FetchedSnapshots> files);
  // Called before a slot is written: makes the snapshots that read from it independent of it.
  void send_readers_away(std::uint32_t slot);
  // Gives the pages of these slots back to the system, unless a restored snapshot reads from them. Only this trainer
  // writes to a free slot.
  void give_back(const std::vector<std::uint32_t>& free_slots);

  [[nodiscard]] unsigned agent_threads() const;
  [[nodiscard]] std::uint64_t size_bytes() const;
  [[nodiscard]] std::string note() const;  // Engine::memory_note()

 private:
  struct Slot {
    std::shared_ptr<void> pin = {};  // what DeviceTensors::pin returned
    std::weak_ptr<restore::DecodedState> chunks = {};
    std::weak_ptr<const FetchedSnapshots> files = {};
  };

  // `more_bytes` beside what is available now. `note`: why it is fewer than the options say.
  [[nodiscard]] Result<std::uint32_t> affordable_slots(const SlotPlan& plan, std::uint64_t more_bytes,
                                                       std::string& note) const;
  [[nodiscard]] Result<void> take(const Arena& arena, PageTaker& taker, Pages pages);
  void put(std::shared_ptr<Arena> arena);

  const EngineOptions& options_;
  exec::Executor& executor_;
  const os::MemoryProbe& memory_;
  std::shared_ptr<Arena> arena_;  // changed under `mutex_`
  std::vector<Slot> slots_;
  std::unique_ptr<PageTaker> pages_;
  std::uint32_t wanted_slots_;
  bool is_checked_ = false;    // the system has memory for all pages of the present arena
  bool must_replace_ = false;  // there is memory for another arena only without the present one
  mutable std::mutex mutex_;
  std::string note_;  // guarded by `mutex_`
};

}  // namespace bitsnap::engine
