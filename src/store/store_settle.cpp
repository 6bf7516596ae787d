// Settling: cleans up after a writer that was killed. It syncs the newest checkpoint, removes uncommitted steps, and
// keeps steps that may be checkpoints without their record.
#include <algorithm>
#include <functional>
#include <ranges>
#include <set>
#include <utility>

#include "base/try.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

// A writer that was killed may have left unsynced names and uncommitted files.
Result<void> Store::Impl::settle() {
  BITSNAP_TRY(refresh_known());
  const std::optional<std::uint64_t> last = newest();
  if (last) BITSNAP_TRY(directories_.sync_step(*last));
  // The newest checkpoint is never removed. If only retired ones are left, the newest was lost, and nothing more is
  // removed. The next save may be below the retired steps, so the syncs make sure that no crash turns one back into a
  // checkpoint.
  has_lost_newest_ = !last && has_retired();
  if (has_lost_newest_) {
    for (const auto& entry : known_) BITSNAP_TRY(directories_.sync_step(entry.first));
    return {};
  }

  std::vector<std::uint64_t> removed;
  bool has_waiting = false;
  for (const auto& [step, known] : std::views::reverse(known_)) {
    if (known.state != store::StepState::uncommitted) continue;
    BITSNAP_ASSIGN(const bool is_spared, is_spared_when_uncommitted(step));
    has_waiting = has_waiting || (is_spared && (!last || step > *last));
    if (!is_spared) removed.push_back(step);
  }
  // An interrupted rollback leaves retired steps above the newest, and so does a repair that sets the newest aside.
  for (const auto& [step, known] : std::views::reverse(known_)) {
    if (!last || step <= *last || has_waiting) break;
    if (known.state != store::StepState::retired || is_referred_to(step, UnreadableRecord::may_refer_to_any)) continue;
    removed.push_back(step);
  }
  std::ranges::sort(removed, std::ranges::greater());
  for (const std::uint64_t step : removed) {
    BITSNAP_TRY(directories_.remove(step));
    known_.erase(step);
  }
  return {};
}

bool Store::Impl::has_retired() const {
  return std::ranges::any_of(known_, [](const auto& e) { return e.second.state == store::StepState::retired; });
}

// Above the newest checkpoint, a step is kept if its shards wait for those of other ranks. Below it, a step is kept if
// others refer to it: it has lost its record, which a repair may rebuild.
Result<bool> Store::Impl::is_spared_when_uncommitted(std::uint64_t step) {
  const std::optional<std::uint64_t> last = newest();
  if (last && step < *last) return is_referred_to(step, UnreadableRecord::may_refer_to_any);
  BITSNAP_ASSIGN(const std::vector<store::ShardRecord> pending, pending_shards(step));
  return !pending.empty();
}

bool Store::Impl::is_referred_to(std::uint64_t step, UnreadableRecord unreadable) {
  // A retired step counts only if it is needed whole: otherwise some of its references may have been removed.
  std::set<std::uint64_t> needed;
  std::vector<std::uint64_t> pending;
  for (const auto& [other, known] : known_) {
    if (known.state == store::StepState::committed && other != step) pending.push_back(other);
  }
  while (!pending.empty()) {
    const auto entry = known_.find(pending.back());
    pending.pop_back();
    if (entry == known_.end()) continue;
    const bool is_recorded = entry->second.state != store::StepState::uncommitted;
    if (!is_recorded || !record_of(entry->first, entry->second)) {
      if (unreadable == UnreadableRecord::may_refer_to_any) return true;
      continue;
    }
    const Result<store::CommitRecord>& record = record_of(entry->first, entry->second);
    for (const store::ShardFile& file : record->shards) {
      for (const store::StepReference& reference : file.references) {
        if (reference.step == step) return true;
        if (!reference.standalone && needed.insert(reference.step).second) {
          pending.push_back(reference.step);
        }
      }
    }
  }
  return false;
}

Result<std::vector<store::ShardRecord>> Store::Impl::pending_shards(std::uint64_t step) const {
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.step_directory(step)));
  std::vector<store::ShardRecord> pending;
  for (const std::string& name : names) {
    if (!name.starts_with("shard-") || !name.ends_with(".json")) continue;
    auto record = store::read_shard_record(file_system_, layout_.step_file(step, name));
    if (record) pending.push_back(std::move(*record));
    if (!record && !store::is_damage(record.error())) return tl::unexpected(std::move(record).error());
  }
  return pending;
}

Result<std::vector<store::ShardRecord>> Store::Impl::waiting_replacements(std::uint64_t step,
                                                                          const store::CommitRecord& record) const {
  BITSNAP_ASSIGN(std::vector<store::ShardRecord> waiting, pending_shards(step));
  std::erase_if(waiting, [&](const store::ShardRecord& shard) { return shard.attempt == record.attempt; });
  return waiting;
}

Result<void> Store::Impl::spare_waiting(std::uint64_t step, const store::CommitRecord& record,
                                        std::vector<std::string>& strays) const {
  if (strays.empty()) return {};
  BITSNAP_ASSIGN(const std::vector<store::ShardRecord> waiting, waiting_replacements(step, record));
  for (const store::ShardRecord& shard : waiting) {
    std::erase(strays, store::shard_record_name(shard.shard, shard.shards, shard.attempt));
    std::erase(strays, shard.file.file);
  }
  return {};
}

// Runs after a change of a step has failed, and finds out what is there, as opening does.
Result<void> Store::Impl::settle_again() {
  sight_ = Sight::nothing;
  strays_removed_ = false;
  BITSNAP_TRY(settle());
  is_settled_ = true;
  return {};
}

}  // namespace bitsnap
