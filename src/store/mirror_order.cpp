#include "store/mirror_order.hpp"

#include <algorithm>
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

  std::vector<std::uint64_t> order() {
    std::vector<std::uint64_t> order;
    while (!pending_.empty()) {
      // If each waits for another one, the newest goes first: then the newest checkpoints are whole the soonest.
      auto next = std::ranges::find_if(pending_, [&](std::uint64_t step) { return can_change(step); });
      if (next == pending_.end()) next = std::prev(pending_.end());
      const std::uint64_t step = *next;
      pending_.erase(next);
      order.push_back(step);
      if (const MirroredStep* const becomes = step_in(wanted_, step)) {
        copy_[step] = *becomes;
      } else {
        copy_.erase(step);
      }
    }
    return order;
  }

 private:
  [[nodiscard]] bool has_become(std::uint64_t step) const {
    const MirroredStep* const now = step_in(copy_, step);
    const MirroredStep* const becomes = step_in(wanted_, step);
    return now == nullptr ? becomes == nullptr : becomes != nullptr && *now == *becomes;
  }

  [[nodiscard]] bool can_change(std::uint64_t step) const {
    const MirroredStep* const becomes = step_in(wanted_, step);
    if (becomes != nullptr && !finds_all(*becomes)) return false;
    const MirroredStep* const now = step_in(copy_, step);
    return std::ranges::all_of(copy_, [&](const auto& other) {
      return other.first == step || still_finds(other.first, other.second, step, now, becomes);
    });
  }

  // Whether what a wanted record refers to is there. What is broken in the run itself does not count.
  [[nodiscard]] bool finds_all(const MirroredStep& entry) const {
    for (const ShardFile& file : entry.record.shards) {
      for (const StepReference& reference : file.references) {
        if (target_of(reference, step_in(wanted_, reference.step)) == nullptr) continue;
        const ShardFile* const target = target_of(reference, step_in(copy_, reference.step));
        if (target == nullptr) return false;
        if (reference.standalone && target->depth != 0 && !has_become(reference.step)) return false;
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

std::vector<std::uint64_t> mirror_order(MirroredSteps copy, const MirroredSteps& wanted) {
  return Changes(std::move(copy), wanted).order();
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
