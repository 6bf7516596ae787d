#include "store/mirror_order.hpp"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

namespace bitsnap::store {
namespace {

const MirroredStep* step_in(const MirroredSteps& steps, std::uint64_t step) {
  const auto found = steps.find(step);
  return found == steps.end() ? nullptr : &found->second;
}

// The file that a reference leads to; nullptr if the step does not have it.
const ShardFile* target_of(const StepReference& reference, const MirroredStep* step) {
  if (step == nullptr || reference.shard >= step->record.shards.size()) return nullptr;
  const ShardFile& file = step->record.shards[reference.shard];
  return file.id == reference.id ? &file : nullptr;
}

// A copy that becomes `wanted` step by step.
class Changes {
 public:
  Changes(MirroredSteps copy, const MirroredSteps& wanted) : copy_(std::move(copy)), wanted_(wanted) {
    for (const auto& [step, entry] : copy_) {
      if (!has_become(step)) pending_.push_back(step);
    }
    for (const auto& [step, entry] : wanted_) {
      if (!copy_.contains(step)) pending_.push_back(step);
    }
    std::ranges::sort(pending_);
  }

  MirrorOrder order() {
    MirrorOrder order;
    while (!pending_.empty()) {
      // Checkpoints that go leave last: until the others are there, they may be the only ones.
      auto next = std::ranges::find_if(pending_, [&](std::uint64_t step) { return !goes(step) && can_change(step); });
      if (next == pending_.end()) next = std::ranges::find_if(pending_, [&](auto step) { return can_change(step); });
      order.push_back(next == pending_.end() ? circle() : std::vector{*next});
      if (next != pending_.end()) become(*next);
    }
    return order;
  }

 private:
  [[nodiscard]] bool has_become(std::uint64_t step) const {
    const MirroredStep* const now = step_in(copy_, step);
    const MirroredStep* const becomes = step_in(wanted_, step);
    return now == nullptr ? becomes == nullptr : becomes != nullptr && *now == *becomes;
  }

  // Whether the step is a checkpoint and will be none.
  [[nodiscard]] bool goes(std::uint64_t step) const {
    const MirroredStep* const now = step_in(copy_, step);
    const MirroredStep* const becomes = step_in(wanted_, step);
    return now != nullptr && !now->is_retired && (becomes == nullptr || becomes->is_retired);
  }

  void become(std::uint64_t step) {
    std::erase(pending_, step);
    if (const MirroredStep* const becomes = step_in(wanted_, step)) {
      copy_[step] = *becomes;
    } else {
      copy_.erase(step);
    }
  }

  [[nodiscard]] bool can_change(std::uint64_t step) const {
    return for_each_in_the_way(step, [](std::uint64_t) { return false; });
  }

  // The fewest steps that wait for each other, and for no others, in the order in which they change: the newest that
  // has to go first, so that the newest checkpoints are whole the soonest.
  std::vector<std::uint64_t> circle() {
    std::set<std::uint64_t> fewest = waits_for(pending_.back());
    for (const std::uint64_t step : std::set(fewest)) {
      std::set<std::uint64_t> others = waits_for(step);
      if (others.size() <= fewest.size()) fewest = std::move(others);
    }
    std::vector<std::uint64_t> steps;
    while (!fewest.empty()) {
      auto next = std::ranges::find_if(fewest, [&](std::uint64_t step) { return can_change(step); });
      if (next == fewest.end()) next = std::prev(fewest.end());
      steps.push_back(*next);
      become(*next);
      fewest.erase(next);
    }
    return steps;
  }

  // The step, and all pending ones that have to change before it.
  [[nodiscard]] std::set<std::uint64_t> waits_for(std::uint64_t step) const {
    std::set<std::uint64_t> steps = {step};
    std::vector<std::uint64_t> open = {step};
    while (!open.empty()) {
      const std::uint64_t next = open.back();
      open.pop_back();
      for_each_in_the_way(next, [&](std::uint64_t other) {
        if (std::ranges::binary_search(pending_, other) && steps.insert(other).second) open.push_back(other);
        return true;
      });
    }
    return steps;
  }

  // Calls `visit` with each step that has to change before this one, until it returns false, which is the result.
  template <typename Visit>
  bool for_each_in_the_way(std::uint64_t step, Visit&& visit) const {
    const MirroredStep* const becomes = step_in(wanted_, step);
    if (becomes != nullptr && !finds_all(*becomes, visit)) return false;
    const MirroredStep* const now = step_in(copy_, step);
    return std::ranges::all_of(copy_, [&](const auto& other) {
      return other.first == step || still_finds(other.first, other.second, step, now, becomes) || visit(other.first);
    });
  }

  // Visits what a wanted record refers to and is not there. What is broken in the run itself does not count.
  template <typename Visit>
  bool finds_all(const MirroredStep& entry, Visit&& visit) const {
    for (const ShardFile& file : entry.record.shards) {
      for (const StepReference& reference : file.references) {
        if (target_of(reference, step_in(wanted_, reference.step)) == nullptr) continue;
        const ShardFile* const target = target_of(reference, step_in(copy_, reference.step));
        const bool is_there =
            target != nullptr && (!reference.standalone || target->depth == 0 || has_become(reference.step));
        if (!is_there && !visit(reference.step)) return false;
      }
    }
    return true;
  }

  // Whether another step of the copy finds in `becomes` what it has found in `now`.
  [[nodiscard]] bool still_finds(std::uint64_t step, const MirroredStep& entry, std::uint64_t changed,
                                 const MirroredStep* now, const MirroredStep* becomes) const {
    for (const ShardFile& file : entry.record.shards) {
      for (const StepReference& reference : file.references) {
        if (reference.step != changed || target_of(reference, now) == nullptr) continue;
        const ShardFile* const target = target_of(reference, becomes);
        if (target == nullptr) return false;
        if (reference.standalone && target->depth != 0 && !has_become(step)) return false;
      }
    }
    return true;
  }

  MirroredSteps copy_;
  const MirroredSteps& wanted_;
  std::vector<std::uint64_t> pending_;  // ascending
};

}  // namespace

bool has_file(const CommitRecord& record, const ShardFile& file) {
  for (std::size_t number = 0; number < record.file_count(); ++number) {
    if (record.file(number) == file) return true;
  }
  return false;
}

bool has_name(const CommitRecord& record, const std::string& name) {
  for (std::size_t number = 0; number < record.file_count(); ++number) {
    if (record.file(number).file == name) return true;
  }
  return false;
}

bool is_same_save(const CommitRecord& a, const CommitRecord& b) {
  return a.time_unix_ms == b.time_unix_ms && a.attempt == b.attempt;
}

std::optional<std::uint64_t> newest_of(const MirroredSteps& steps) {
  for (const auto& [step, entry] : std::views::reverse(steps)) {
    if (!entry.is_retired) return step;
  }
  return std::nullopt;
}

MirrorOrder mirror_order(MirroredSteps copy, const MirroredSteps& wanted) {
  return Changes(std::move(copy), wanted).order();
}

MirroredSteps hold_back(const MirroredSteps& copy, const MirroredSteps& wanted, std::set<std::uint64_t>& held) {
  for (;;) {
    MirroredSteps steps = wanted;
    for (const std::uint64_t step : held) {
      steps.erase(step);
      if (const MirroredStep* const stays = step_in(copy, step)) steps.emplace(step, *stays);
    }
    std::set<std::uint64_t> more;
    for (const auto& [step, entry] : steps) {
      for (const ShardFile& file : entry.record.shards) {
        for (const StepReference& reference : file.references) {
          const bool is_lost = target_of(reference, step_in(wanted, reference.step)) != nullptr &&
                               target_of(reference, step_in(steps, reference.step)) == nullptr;
          if (held.contains(step) ? step_in(copy, reference.step) != nullptr : is_lost) {
            more.insert(held.contains(step) ? reference.step : step);
          }
        }
      }
    }
    const auto newest = newest_of(wanted);
    if (newest && newest_of(steps) != newest) {
      for (const auto& [step, entry] : copy) {
        const MirroredStep* const becomes = step_in(wanted, step);
        if (!entry.is_retired && (becomes == nullptr || becomes->is_retired)) more.insert(step);
      }
    }
    const std::size_t before = held.size();
    held.merge(more);
    if (held.size() == before) return steps;
  }
}

void add_needed(MirroredSteps& steps, const MirroredSteps& all) {
  std::vector<std::uint64_t> open;
  for (const auto& [step, entry] : steps) open.push_back(step);
  while (!open.empty()) {
    const MirroredStep& entry = steps.at(open.back());
    open.pop_back();
    for (const ShardFile& file : entry.record.shards) {
      for (const StepReference& reference : file.references) {
        const MirroredStep* const needed = step_in(all, reference.step);
        if (needed == nullptr || steps.contains(reference.step)) continue;
        steps.emplace(reference.step, MirroredStep{needed->record, true});
        open.push_back(reference.step);
      }
    }
  }
}

}  // namespace bitsnap::store
