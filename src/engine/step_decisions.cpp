// Decisions by step, and which of them each rank has yet to follow.
#include "engine/step_decisions.hpp"

#include <algorithm>

namespace bitsnap::engine {
namespace {

// Limit for remembered decisions: ranks are never this many steps apart.
constexpr std::size_t kMaxDecisions = 1024;

}  // namespace

void StepDecisions::note_hello(std::uint32_t rank) {
  decisions_.clear();
  ranks_.erase(rank);
}

void StepDecisions::note_staged(std::uint32_t rank, std::uint64_t step) {
  ranks_[rank] = {.told = step, .staged = step};
}

std::size_t StepDecisions::promised(std::uint32_t rank, std::uint64_t step) const {
  const auto known = ranks_.find(rank);
  // The steps of a trainer ascend, so it will not save one below the last that it asked about.
  const auto is_ahead = [&](std::uint64_t other) {
    if (known == ranks_.end()) return true;
    const auto& [told, staged] = known->second;
    return told && *told == other ? staged != other : !told || other > *told;
  };
  return static_cast<std::size_t>(std::ranges::count_if(decisions_, [&](const auto& decision) {
    return decision.second.is_saved && decision.first != step && is_ahead(decision.first);
  }));
}

bool StepDecisions::decide(std::uint32_t rank, std::uint64_t step, std::span<const FreeSlots> slots) {
  auto found = decisions_.find(step);
  // A rank that asks again has gone back to an earlier step, and so will the others.
  if (found == decisions_.end() || found->second.told.contains(rank)) {
    // A rank may have saved the step without asking, or before this agent was there.
    const bool is_begun = std::ranges::any_of(
        ranks_, [&](const auto& other) { return other.first != rank && other.second.staged == step; });
    const auto has_room = [&](const FreeSlots& each) { return each.free > promised(each.rank, step); };
    found = decisions_.insert_or_assign(step, Decision{is_begun || std::ranges::all_of(slots, has_room)}).first;
    if (decisions_.size() > kMaxDecisions) {
      decisions_.erase(decisions_.begin() == found ? std::next(found) : decisions_.begin());
    }
  }
  found->second.told.insert(rank);
  ranks_[rank].told = step;
  return found->second.is_saved;
}

}  // namespace bitsnap::engine
