#include "engine/trainer_saves.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace bitsnap::engine {

Staged TrainerSave::staged() const {
  return {.ticket = state.ticket,
          .slot = *slot,
          .step = state.step,
          .bytes = bytes,
          .persist = state.persist,
          .again = was_told && is_new};
}

void TrainerSaves::add(TrainerSave save) {
  for (auto each = saves_.begin(); saves_.size() > kMaxRemembered && each != saves_.end();) {
    each = each->second.state.is_over() && !each->second.slot ? saves_.erase(each) : std::next(each);
  }
  const std::uint64_t ticket = save.state.ticket;
  if (save.slot) slots_.put(*save.slot, SlotUse::staged, ticket);
  saves_[ticket] = std::move(save);
}

TrainerSave* TrainerSaves::find(std::uint64_t ticket) {
  const auto found = saves_.find(ticket);
  return found == saves_.end() ? nullptr : &found->second;
}

void TrainerSaves::free_slot(std::uint32_t slot) {
  const auto ticket = slots_.free(slot);
  if (TrainerSave* const save = ticket ? find(*ticket) : nullptr) save->slot.reset();
}

void TrainerSaves::take_back(std::uint64_t ticket) {
  if (const TrainerSave* const save = find(ticket); save != nullptr && save->slot) slots_.free(*save->slot);
  saves_.erase(ticket);
}

void TrainerSaves::refuse(TrainerSave& save, Error error) {
  if (save.slot) free_slot(*save.slot);
  end_with(save, std::move(error));
}

void TrainerSaves::end_with(TrainerSave& save, Error error) {
  save.state.stage = SaveStage::failed;
  save.state.error = std::move(error);
  failures_.push_back(save.state);
  if (failures_.size() > kMaxFailures) failures_.erase(failures_.begin());
}

void TrainerSaves::end_all(const Error& error) {
  for (auto& [ticket, save] : saves_) {
    if (!save.state.is_over()) end_with(save, error);
  }
}

std::size_t TrainerSaves::unfinished() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(saves_, [](const auto& save) { return !save.second.state.is_over(); }));
}

void TrainerSaves::apply(const ProgressEvent& event) {
  TrainerSave* const save = find(event.ticket);
  if (save != nullptr && event.stage && !save->state.is_over()) {
    SaveState& state = save->state;
    if (event.raw_bytes != 0) state.raw_bytes = event.raw_bytes;
    if (event.stored_bytes != 0) state.stored_bytes = event.stored_bytes;
    if (event.base) state.base = event.base;
    if (event.encode_us != 0) state.encode_seconds = static_cast<double>(event.encode_us) * 1e-6;
    if (event.write_us != 0) state.write_seconds = static_cast<double>(event.write_us) * 1e-6;
    switch (*event.stage) {
      case Stage::memory:
        state.stage = SaveStage::memory;
        state.has_reached_memory = true;
        break;
      case Stage::persisted: state.stage = SaveStage::persisted; break;
      case Stage::failed:
        if (event.skipped) {
          state.stage = SaveStage::skipped;
        } else {
          end_with(*save, event.error.value_or(Error(ErrorKind::internal, "failed")));
        }
        break;
    }
  }
  if (!event.free) return;
  if (slots_.size() == 0 && early_frees_.size() < kMaxSlots) early_frees_.push_back(*event.free);
  if (*event.free < slots_.size()) free_slot(*event.free);
}

void TrainerSaves::lose(const Error& error) {
  // A save that is no longer in a slot cannot be staged again.
  for (auto& [ticket, save] : saves_) {
    if (save.state.is_over() || save.slot || save.lost) continue;
    save.lost = Error(error.kind(),
                      fmt::format("step {} was compressed but not persisted: {}", save.state.step, error.message()));
  }
  const auto is_unneeded = [this](const std::optional<std::uint64_t>& ticket) {
    const TrainerSave* const save = ticket ? find(*ticket) : nullptr;
    return save == nullptr || save->state.is_over();
  };
  while (const auto slot = slots_.find(SlotUse::staged, is_unneeded)) free_slot(*slot);
}

bool TrainerSaves::has_lost() const {
  return std::ranges::any_of(saves_, [](const auto& save) { return save.second.lost && !save.second.state.is_over(); });
}

void TrainerSaves::settle_lost(std::span<const std::uint64_t> steps) {
  for (auto& [ticket, save] : saves_) {
    if (!save.lost || save.state.is_over()) continue;
    if (save.is_new && std::ranges::binary_search(steps, save.state.step)) {
      save.state.stage = SaveStage::persisted;
    } else {
      end_with(save, *save.lost);
    }
  }
}

std::vector<Staged> TrainerSaves::hand_over_again() {
  std::vector<Staged> again;
  for (auto& [ticket, save] : saves_) {
    if (save.state.is_over() || !save.slot) continue;
    // The save itself may have killed these agents.
    if (save.was_told && ++save.agents_died == kMostAgents) {
      refuse(save, Error(ErrorKind::io,
                         fmt::format("step {}: {} agents died while they saved it", save.state.step, kMostAgents)));
      continue;
    }
    again.push_back(save.staged());
    save.was_told = true;
  }
  return again;
}

void TrainerSaves::begin_arena(std::size_t slots) {
  for (auto& [ticket, save] : saves_) save.slot.reset();
  slots_.begin(slots);
}

void TrainerSaves::adopt_arena(std::span<const HeldSlot> slots) {
  begin_arena(slots.size());
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const bool is_freed = std::ranges::find(early_frees_, i) != early_frees_.end();
    if (slots[i].is_held && !is_freed) slots_.put(i, SlotUse::staged);
  }
  early_frees_.clear();
}

std::vector<std::uint32_t> TrainerSaves::free_slots() const {
  std::vector<std::uint32_t> free;
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_.use(i) == SlotUse::free) free.push_back(i);
  }
  return free;
}

std::optional<std::uint32_t> TrainerSaves::fill_slot() {
  const auto slot = slots_.find(SlotUse::free);
  if (slot) slots_.put(*slot, SlotUse::filling);
  return slot;
}

bool TrainerSaves::is_encoding() const {
  const auto has_staged = [](const auto& save) {
    return save.second.slot && save.second.state.stage == SaveStage::staged;
  };
  return std::ranges::any_of(saves_, has_staged);
}

bool TrainerSaves::needs_arena() const {
  return std::ranges::any_of(saves_, [](const auto& save) { return save.second.slot && !save.second.state.is_over(); });
}

}  // namespace bitsnap::engine
