// Repair: finds damage, rewrites whole checkpoints without damaged ones, marks those as damaged of which something can
// be read, and sets the others aside.
#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "store/missing_store.hpp"
#include "store/store_repairer.hpp"

namespace bitsnap {

void Store::Impl::Repairer::note_unclear() {
  const std::optional<std::uint64_t> last = store_.known_.newest();
  for (const auto& [step, known] : store_.known_.all()) {
    if (known.state != store::StepState::uncommitted) continue;
    const bool may_be_checkpoint =
        last ? step < *last && store_.known_.is_referred_to(step, store::UnreadableRecord::may_refer_to_any)
             : store_.known_.has_retired();
    if (may_be_checkpoint) unclear_.insert(step);
  }
}

Result<void> Store::Impl::Repairer::find_damages() {
  std::vector<const store::CommitRecord*> committed;
  std::vector<const store::CommitRecord*> retired;
  for (auto& [step, known] : store_.known_.all()) {
    if (known.state == store::StepState::uncommitted) {
      if (!unclear_.contains(step)) continue;
      damages_[step].push_back(
          store::record_damage(step, false, Error(ErrorKind::corrupt, "the record is missing and cannot be rebuilt")));
      continue;
    }
    const bool is_retired = known.state == store::StepState::retired;
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    if (record) {
      (is_retired ? retired : committed).push_back(&*record);
      continue;
    }
    if (!store::is_damage(record.error())) return tl::unexpected(record.error());
    damages_[step].push_back(store::record_damage(step, is_retired, record.error()));
  }
  // A retired step need not be restorable, but no damage may stay in it, because a checkpoint could come to need it.
  BITSNAP_ASSIGN(std::vector<StoreDamage> found, store_.verify_records(*store_.reader_, committed, true, options_.run));
  BITSNAP_ASSIGN(std::vector<StoreDamage> found_in_retired,
                 store_.verify_records(*store_.reader_, retired, false, {options_.run.threads, nullptr}));
  std::ranges::move(found_in_retired, std::back_inserter(found));
  for (StoreDamage& damage : found) {
    // A file that the system refuses to read may be whole.
    if (!store::is_damage(damage.error)) return tl::unexpected(std::move(damage.error));
    damages_[damage.step].push_back(std::move(damage));
  }
  return {};
}

Result<void> Store::Impl::Repairer::choose_kept() {
  std::map<std::uint64_t, store::SearchedStep> steps;
  for (auto& [step, known] : store_.known_.all()) {
    if (known.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    if (record) steps[step] = {&*record, known.state == store::StepState::retired, damages_.contains(step)};
  }
  BITSNAP_ASSIGN(kept_, store::choose_kept(*store_.reader_, steps, options_.run.threads));
  return {};
}

Result<void> Store::Impl::Repairer::mark_damaged() {
  for (auto& [step, known] : store_.known_.all()) {
    if (known.state != store::StepState::committed) continue;
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    if (!record) continue;
    const auto kept = kept_.find(step);
    const std::uint64_t damaged = kept == kept_.end() ? 0 : kept->second.damaged;
    if (kept != kept_.end()) {
      report_.damaged.push_back({step, kept->second.tensors, damaged, std::move(damages_[step])});
    }
    if (record->damaged_tensors == damaged || (damaged == 0 && damages_.contains(step))) continue;
    if (damaged == 0) report_.mended.push_back({step, "was kept as damaged, and is whole again"});
    store::CommitRecord marked = *record;
    marked.damaged_tensors = damaged;
    BITSNAP_TRY(write_record(known, std::move(marked)));
  }
  return {};
}

// An undamaged checkpoint must not need a damaged step. It must not need a retired step that refers to a damaged one
// either: such a step is readable only in part, and nobody was promised more of it.
Result<void> Store::Impl::Repairer::rewrite_what_is_whole() {
  std::set<std::uint64_t> dropped;
  std::vector<std::uint64_t> whole;
  for (const auto& [step, known] : store_.known_.all()) {
    if (known.state != store::StepState::uncommitted && damages_.contains(step)) dropped.insert(step);
    if (known.state == store::StepState::committed && !damages_.contains(step)) whole.push_back(step);
  }
  report_.checkpoints = whole.size();
  if (!whole.empty()) report_.newest = whole.back();
  for (std::size_t before = 0; before != dropped.size();) {
    before = dropped.size();
    for (auto& [step, known] : store_.known_.all()) {
      if (known.state != store::StepState::retired || dropped.contains(step)) continue;
      if (store::refers_to(*store_.known_.record(step), dropped)) dropped.insert(step);
    }
  }
  if (options_.dry_run || dropped.empty()) return {};
  std::vector<PruneReport::Rewritten> rewritten;
  BITSNAP_TRY(store_.rewrite_all(dropped, whole, {}, {options_.run.threads, nullptr}, rewritten));
  for (const PruneReport::Rewritten& entry : rewritten) {
    report_.mended.push_back({entry.step, "rewritten without its damaged bases"});
  }
  return {};
}

Result<void> Store::Impl::Repairer::set_aside(std::uint64_t step, std::vector<StoreDamage> damages) {
  RepairReport::Dropped& entry = report_.dropped.emplace_back();
  entry.step = step;
  entry.was_pruned = store_.known_[step].state == store::StepState::retired;
  entry.damages = std::move(damages);
  entry.moved_to = fmt::format("{}/{}", store::kDamagedName, store::step_name(step));
  if (!options_.dry_run) {
    BITSNAP_ASSIGN(entry.moved_to, store_.directories_.set_aside(step));
  }
  store_.known_.erase(step);
  return {};
}

Result<void> Store::Impl::Repairer::set_aside_what_is_not() {
  for (auto& [step, found] : std::views::reverse(damages_)) {
    if (!kept_.contains(step)) BITSNAP_TRY(set_aside(step, std::move(found)));
  }
  // A step was rebuilt as retired because another step referred to it. If that other step is lost, this one is set
  // aside, too.
  for (const std::uint64_t step : std::views::reverse(found_again_)) {
    const auto known = store_.known_.all().find(step);
    if (known == store_.known_.all().end() || known->second.state != store::StepState::retired) continue;
    if (store_.known_.is_referred_to(step, store::UnreadableRecord::refers_to_nothing)) continue;
    const Error lost(ErrorKind::corrupt, "the record was missing, and only lost checkpoints refer to the step");
    BITSNAP_TRY(set_aside(step, {store::record_damage(step, false, lost)}));
  }
  std::ranges::sort(report_.dropped, {}, &RepairReport::Dropped::step);
  return {};
}

Result<RepairReport> Store::Impl::Repairer::run() {
  BITSNAP_TRY(mend_run_record());
  BITSNAP_TRY(store_.known_.load_all());
  for (const auto& entry : store_.known_.all()) {
    // A repair that was killed may have left an unsynced record.
    if (!options_.dry_run) BITSNAP_TRY(store_.directories_.sync_step(entry.first));
  }
  note_unclear();
  const bool has_lost_newest = !store_.known_.newest() && store_.known_.has_retired();
  if (has_lost_newest) BITSNAP_TRY(mend_newest());
  BITSNAP_TRY(mend_records());
  BITSNAP_TRY(mend_labels());
  BITSNAP_TRY(mend_files());
  BITSNAP_TRY(find_damages());
  BITSNAP_TRY(choose_kept());
  BITSNAP_TRY(rewrite_what_is_whole());
  BITSNAP_TRY(mark_damaged());
  BITSNAP_TRY(set_aside_what_is_not());
  BITSNAP_ASSIGN(report_.strays, store_.remove_strays(options_.dry_run, true));
  return std::move(report_);
}

Result<RepairReport> Store::Impl::repair(os::FileSystem& file_system, const std::string& path,
                                         const RepairOptions& options) {
  if (path.empty()) return fail(ErrorKind::invalid_argument, "the path of the store must not be empty");
  Impl impl(file_system, path, {.access = options.dry_run ? StoreAccess::read : StoreAccess::write}, nullptr);
  BITSNAP_TRY(impl.check_is_no_reference());
  BITSNAP_ASSIGN(const os::FileInfo checkpoints, impl.file_system_.stat(impl.layout_.checkpoints()));
  BITSNAP_ASSIGN(const os::FileInfo record, impl.file_system_.stat(impl.layout_.run_record()));
  BITSNAP_ASSIGN(const os::FileInfo lock, impl.file_system_.stat(impl.layout_.lock()));
  // If `checkpoints` is no directory, listing it gives the error.
  bool is_store = checkpoints.exists && (record.exists || lock.exists);
  if (checkpoints.exists && !is_store) {
    BITSNAP_ASSIGN(is_store, impl.has_checkpoints());
  }
  if (!is_store) return tl::unexpected(store::no_store_error(file_system, impl.layout_.root()));
  if (!options.dry_run) {
    BITSNAP_ASSIGN(store::WriteGuard guard, impl.begin_writing(os::LockKind::exclusive));
    impl.lock_ = std::move(guard.lock);
  }
  return Repairer(impl, options).run();
}

namespace store {

Result<RepairReport> repair_store(os::FileSystem& file_system, const std::string& path, const RepairOptions& options) {
  return no_throw("repairing", [&] { return Store::Impl::repair(file_system, path, options); });
}

}  // namespace store
}  // namespace bitsnap
