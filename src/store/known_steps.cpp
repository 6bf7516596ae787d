#include "store/known_steps.hpp"

#include <algorithm>
#include <ranges>

#include <fmt/format.h>

#include "base/try.hpp"

namespace bitsnap::store {

void add_references(StepNode& node, const ShardFile& file) {
  for (const auto& reference : file.references) node.references.push_back({reference.step, reference.standalone});
}

void describe(StepNode& node, const KnownStep& known, const CommitRecord& record) {
  node.bytes = known.record_bytes + stored_bytes(record);
  node.raw_bytes = raw_bytes(record);
  node.coded_share = record.coded_share;
  node.coded_age = record.coded_age.value_or(0);
  node.is_kept_as_damaged = record.damaged_tensors > 0;
  for (const ShardFile& file : record.shards) add_references(node, file);
}

Result<void> KnownSteps::load_all() {
  if (sight_ == Sight::all) return {};
  BITSNAP_ASSIGN(const std::vector<StepEntry> entries, directories_.list());
  know(entries, Sight::all, entries.size());
  return {};
}

Result<void> KnownSteps::load_newest() {
  if (sight_ != Sight::nothing) return {};
  BITSNAP_ASSIGN(const NewestSteps newest, directories_.list_newest());
  know(newest.entries, Sight::newest, newest.all_steps);
  return {};
}

void KnownSteps::know(const std::vector<StepEntry>& entries, Sight sight, std::size_t all_steps) {
  steps_.clear();
  for (const StepEntry& entry : entries) steps_[entry.step] = KnownStep{entry.state, entry.record.size_bytes, nullptr};
  sight_ = sight;
  listed_ = all_steps;
}

Result<KnownStep*> KnownSteps::find(std::uint64_t step) {
  if (const auto known = steps_.find(step); known != steps_.end()) return &known->second;
  if (sight_ == Sight::all) return nullptr;
  BITSNAP_ASSIGN(const std::optional<StepEntry> entry, directories_.find(step));
  if (!entry) return nullptr;
  return &(steps_[step] = KnownStep{entry->state, entry->record.size_bytes, nullptr});
}

std::optional<std::uint64_t> KnownSteps::newest() const {
  for (const auto& [step, known] : std::views::reverse(steps_)) {
    if (known.state == StepState::committed) return step;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> KnownSteps::newest_below(std::uint64_t step) const {
  const std::ranges::subrange earlier(steps_.begin(), steps_.lower_bound(step));
  for (const auto& [there, known] : std::views::reverse(earlier)) {
    if (known.state == StepState::committed) return there;
  }
  return std::nullopt;
}

const Result<CommitRecord>& KnownSteps::record(std::uint64_t step) {
  KnownStep& known = steps_[step];
  if (known.record == nullptr) {
    known.record = std::make_shared<const Result<CommitRecord>>(
        read_commit_record(file_system_, layout_, step, known.state == StepState::retired));
  }
  return *known.record;
}

bool KnownSteps::is_replaceable(std::uint64_t step) const {
  for (const auto& [there, known] : std::views::reverse(steps_)) {
    if (known.state == StepState::committed) return there == step;
    // If the newest checkpoint was lost, the retired steps above are older than the newest one of now.
    if (known.state == StepState::retired && !has_lost_newest_) return false;
  }
  return false;
}

Result<void> KnownSteps::check_new(std::uint64_t step) {
  // A new step must be above the retired steps, too, because a retired step may have been the newest before a crash. If
  // the newest checkpoint was lost, the retired ones are kept for nobody, and the step must only differ from them.
  for (const auto& [there, known] : std::views::reverse(steps_)) {
    if (known.state == StepState::uncommitted || step > there) continue;
    if (has_lost_newest_ && known.state == StepState::retired && step < there) continue;
    const Result<CommitRecord>& record = this->record(there);
    const std::string others =
        record && record->damaged_tensors > 0
            ? fmt::format(", or remove step {}, which is kept as damaged, or use another store", there)
        : record && !record->attempt.empty()
            ? fmt::format("; if another job committed step {} (attempt '{}'), give each job a store of its own", there,
                          record->attempt)
            : "";
    const std::string advice =
        step == there ? "replace=True in Python saves that step again"
                      : fmt::format(
                            "to go on from an earlier step, `bitsnap rollback {0} --to STEP` removes the steps "
                            "above it, and `bitsnap branch {0}@STEP NAME` begins a line of its own",
                            layout_.root());
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: step must be greater than {}, the newest step, got {}; {}{}", layout_.root(), there,
                            step, advice, others));
  }
  return {};
}

bool KnownSteps::has_retired() const {
  return std::ranges::any_of(steps_, [](const auto& e) { return e.second.state == StepState::retired; });
}

bool KnownSteps::is_referred_to(std::uint64_t step, UnreadableRecord unreadable) {
  // A retired step counts only if it is needed whole: otherwise some of its references may have been removed.
  std::set<std::uint64_t> needed;
  std::vector<std::uint64_t> pending;
  for (const auto& [other, known] : steps_) {
    if (known.state == StepState::committed && other != step) pending.push_back(other);
  }
  while (!pending.empty()) {
    const auto entry = steps_.find(pending.back());
    pending.pop_back();
    if (entry == steps_.end()) continue;
    const bool is_recorded = entry->second.state != StepState::uncommitted;
    if (!is_recorded || !record(entry->first)) {
      if (unreadable == UnreadableRecord::may_refer_to_any) return true;
      continue;
    }
    const Result<CommitRecord>& record = this->record(entry->first);
    for (const ShardFile& file : record->shards) {
      for (const StepReference& reference : file.references) {
        if (reference.step == step) return true;
        if (!reference.standalone && needed.insert(reference.step).second) pending.push_back(reference.step);
      }
    }
  }
  return false;
}

// What a checkpoint leads to by references, itself included.
std::set<std::uint64_t> KnownSteps::needed_by(std::uint64_t step) {
  std::set<std::uint64_t> needed = {step};
  std::vector<std::uint64_t> pending = {step};
  while (!pending.empty()) {
    const auto known = steps_.find(pending.back());
    pending.pop_back();
    if (known == steps_.end() || known->second.state == StepState::uncommitted) continue;
    const Result<CommitRecord>& record = this->record(known->first);
    if (!record) continue;
    for (const ShardFile& file : record->shards) {
      for (const StepReference& reference : file.references) {
        if (needed.insert(reference.step).second) pending.push_back(reference.step);
      }
    }
  }
  return needed;
}

}  // namespace bitsnap::store
