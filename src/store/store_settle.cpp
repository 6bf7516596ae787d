// Settling: cleans up after a writer that was killed. It syncs the newest checkpoint, removes uncommitted steps, and
// keeps steps that may be checkpoints without their record.
#include <algorithm>
#include <functional>
#include <ranges>

#include "base/try.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

// A writer that was killed may have left unsynced names and uncommitted files.
Result<void> Store::Impl::settle() {
  BITSNAP_TRY(known_.load_all());
  const std::optional<std::uint64_t> last = known_.newest();
  if (last) BITSNAP_TRY(directories_.sync_step(*last));
  // The newest checkpoint is never removed. If only retired ones are left, the newest was lost, and nothing more is
  // removed. The next save may be below the retired steps, so the syncs make sure that no crash turns one back into a
  // checkpoint.
  if (known_.note_lost_newest()) {
    for (const auto& entry : known_.all()) BITSNAP_TRY(directories_.sync_step(entry.first));
    return {};
  }

  std::vector<std::uint64_t> removed;
  bool has_waiting = false;
  for (const auto& [step, known] : std::views::reverse(known_.all())) {
    if (known.state != store::StepState::uncommitted) continue;
    BITSNAP_ASSIGN(const bool is_spared, is_spared_when_uncommitted(step));
    has_waiting = has_waiting || (is_spared && (!last || step > *last));
    if (!is_spared) removed.push_back(step);
  }
  // An interrupted rollback leaves retired steps above the newest, and so does a repair that sets the newest aside.
  for (const auto& [step, known] : std::views::reverse(known_.all())) {
    if (!last || step <= *last || has_waiting) break;
    if (known.state != store::StepState::retired ||
        known_.is_referred_to(step, store::UnreadableRecord::may_refer_to_any))
      continue;
    removed.push_back(step);
  }
  std::ranges::sort(removed, std::ranges::greater());
  for (const std::uint64_t step : removed) {
    BITSNAP_TRY(directories_.remove(step));
    known_.erase(step);
  }
  return {};
}

// Above the newest checkpoint, a step is kept if its shards wait for those of other ranks. Below it, a step is kept if
// others refer to it: it has lost its record, which a repair may rebuild.
Result<bool> Store::Impl::is_spared_when_uncommitted(std::uint64_t step) {
  const std::optional<std::uint64_t> last = known_.newest();
  if (last && step < *last) return known_.is_referred_to(step, store::UnreadableRecord::may_refer_to_any);
  BITSNAP_ASSIGN(const std::vector<store::ShardRecord> pending, directories_.pending_shards(step));
  return !pending.empty();
}

// Runs after a change of a step has failed, and finds out what is there, as opening does.
Result<void> Store::Impl::settle_again() {
  known_.forget();
  strays_removed_ = false;
  BITSNAP_TRY(settle());
  is_settled_ = true;
  return {};
}

}  // namespace bitsnap
