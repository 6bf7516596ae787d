// Giving memory back while a trainer restores and has too little. The encoder thread calls all of this.
#include "engine/agent_rank.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::engine {

// Free slots are the trainer's, which gives their pages back itself.

void AgentRank::give_back_beside(std::uint64_t step) {
  cache_->give_back(slot_of(step) ? std::nullopt : std::optional(step));
}

void AgentRank::give_back_stored(std::uint64_t step, const std::string& attempt) {
  if (is_in_store(step, attempt)) {
    std::vector<std::uint32_t> unneeded;
    const std::lock_guard lock(mutex_);
    for (std::uint32_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.state == SlotState::held && slot.step == step && slot.attempt == attempt) unneeded.push_back(i);
    }
    for (const std::uint32_t slot : unneeded) free_slot_locked(slot);
  }
  // The trainer may replace the arena now, so a slot is no place where a state is safe.
  cache_->set_restorable(std::nullopt);
  cache_->give_back(std::nullopt);
}

bool AgentRank::is_in_store(std::uint64_t step, const std::string& attempt) const {
  const auto record = store::read_commit_record(job_.files, store::RunLayout(job_.store_path), step);
  return record && record->attempt == attempt;
}

}  // namespace bitsnap::engine
