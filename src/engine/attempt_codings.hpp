// AttemptCodings: what the first rank of a node has chosen to code its shard of an attempt against. Ranks with equal
// states choose the same, although a checkpoint may be committed in between, because only then are their files equal.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "store/pending_save.hpp"

namespace bitsnap::engine {

class AttemptCodings {
 public:
  // The choice of the first rank; nullptr if there is none yet. Valid until the next note().
  [[nodiscard]] const store::Coding* find(std::uint64_t step, const std::string& attempt) const {
    for (const Choice& choice : choices_) {
      if (choice.step == step && choice.attempt == attempt) return &choice.coding;
    }
    return nullptr;
  }

  void note(std::uint64_t step, const std::string& attempt, const store::Coding& coding) {
    if (find(step, attempt) != nullptr) return;
    choices_.push_back({step, attempt, coding});
    if (choices_.size() > kMost) choices_.pop_front();
  }

 private:
  static constexpr std::size_t kMost = 64;  // ranks are rarely so many saves apart

  struct Choice {
    std::uint64_t step;
    std::string attempt;
    store::Coding coding;
  };
  std::deque<Choice> choices_;
};

}  // namespace bitsnap::engine
