// Decides for all ranks of one agent together whether they save a step: docs/spec/engine.md, "decide". A step is saved
// if every rank has a slot for it that no earlier decision counts on. The first rank that asks gets the decision made;
// the others get the same. Owned by the agent; one thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>

namespace bitsnap::engine {

// A rank with a living trainer.
struct FreeSlots {
  std::uint32_t rank = 0;
  std::size_t free = 0;
};

class StepDecisions {
 public:
  // A trainer has said hello: what its predecessor, or all ranks before a restart, did not follow counts no more.
  void note_hello(std::uint32_t rank);
  // The rank has saved the step, with or without asking.
  void note_staged(std::uint32_t rank, std::uint64_t step);

  // Whether `rank` saves the step. `slots`: of all ranks of the agent that have a trainer.
  [[nodiscard]] bool decide(std::uint32_t rank, std::uint64_t step, std::span<const FreeSlots> slots);

 private:
  struct Decision {
    bool is_saved = false;
    std::set<std::uint32_t> told = {};
  };
  struct Rank {
    std::optional<std::uint64_t> told = {};    // the last step that it asked about or saved
    std::optional<std::uint64_t> staged = {};  // the last step that it saved
  };

  // How many slots of the rank earlier decisions count on, which it has not filled yet.
  [[nodiscard]] std::size_t promised(std::uint32_t rank, std::uint64_t step) const;

  std::map<std::uint64_t, Decision> decisions_;
  std::map<std::uint32_t, Rank> ranks_;
};

}  // namespace bitsnap::engine
