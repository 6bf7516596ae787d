// Rollback: removes the newest checkpoints.
#include <iterator>
#include <set>
#include <utility>

#include "base/try.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

Result<RollbackReport> Store::Impl::rollback(std::uint64_t step, const RunOptions& options) {
  BITSNAP_ASSIGN(const store::WriteGuard guard, begin_writing(os::LockKind::exclusive));
  BITSNAP_TRY(known_.load_all());
  const auto target = known_.all().find(step);
  if (target == known_.all().end() || target->second.state != store::StepState::committed) {
    return tl::unexpected(directories_.not_found(step));
  }
  // Another rank may have committed the step and been killed before it synced the name.
  if (lock_ == nullptr) BITSNAP_TRY(directories_.sync_step(step));
  if (known_.all().rbegin()->first > step) BITSNAP_TRY(labels_.settle());
  std::set<std::uint64_t> above;
  for (auto entry = known_.all().upper_bound(step); entry != known_.all().end(); ++entry) above.insert(entry->first);
  // Damage above must not keep a training from going back.
  if (Result<void> detached = detach(above, options); !detached && !store::is_damage(detached.error())) {
    return tl::unexpected(std::move(detached).error());
  }
  RollbackReport report;
  while (known_.all().rbegin()->first > step) {
    const auto last = std::prev(known_.all().end());
    const std::uint64_t removed = last->first;
    const bool was_committed = last->second.state == store::StepState::committed;
    std::uint64_t bytes = last->second.record_bytes;
    if (last->second.state != store::StepState::uncommitted) {
      if (const Result<store::CommitRecord>& record = known_.record(removed)) {
        bytes = store::checkpoint_info(*record, bytes).stored_bytes;
      }
    }
    BITSNAP_TRY(remove_step(removed));
    if (was_committed) report.removed.push_back(removed);
    report.removed_bytes += bytes;
  }
  return report;
}

}  // namespace bitsnap
