// Repair: rebuilds records, rewrites whole checkpoints without damaged ones, and sets the damaged ones aside.
#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/random.hpp"
#include "quantize/loss_rules.hpp"
#include "store/record_rebuild.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

// The place of the snapshot `id`, if the record names it. What is coded against a later step was rewritten, and files
// that were coded against it before do not say how deep its chunks are now.
std::optional<store::StepReference> find_in(const store::CommitRecord& record, const SnapshotId& id) {
  const auto file = std::ranges::find(record.shards, id, &store::ShardFile::id);
  if (file == record.shards.end()) return std::nullopt;
  const bool is_rewritten = std::ranges::any_of(
      file->references, [&](const store::StepReference& reference) { return reference.step > record.step; });
  return store::StepReference{id, record.step, static_cast<std::uint32_t>(file - record.shards.begin()), !is_rewritten};
}

}  // namespace

// One repair. It rebuilds records first, from the oldest on, because a record is rebuilt with the records before it.
class Store::Impl::Repairer {
 public:
  Repairer(Impl& store, const RepairOptions& options) : store_(store), options_(options) {}

  Result<RepairReport> run();

 private:
  Result<void> mend_run_record();
  Result<void> mend_labels();
  // Takes the caller's files out of the records if they are damaged: the state is whole without them.
  Result<void> mend_files();
  Result<std::optional<Policy>> newest_policy();
  Result<void> mend_records();
  Result<void> mend_records_once();
  Result<void> mend_record(std::uint64_t step, Known& known);
  // Rebuilds the record of a step that has none. Returns whether the files of the step form a checkpoint.
  Result<bool> mend_missing(std::uint64_t step, Known& known, const std::string& why);
  // All steps but this one, first the earlier ones from the newest on, then the later ones.
  [[nodiscard]] std::vector<std::uint64_t> others(std::uint64_t step) const;
  // The place of the snapshot `id`, to which step `by` refers, in another step.
  std::optional<store::StepReference> find(const SnapshotId& id, std::uint64_t by);
  // Like find(), but searches steps without a record, and gives the step that it finds a new record. That step may have
  // been pruned, with some files left: this cannot be told from a lost record.
  std::optional<store::StepReference> find_uncommitted(const SnapshotId& id, std::uint64_t by);
  Result<void> replace_record(std::uint64_t step, Known& known, store::CommitRecord record, const std::string& why);
  // Rebuilds a record from the files of the step. If `gone` is given, a base that is not found counts as part of step
  // `gone`.
  Result<store::CommitRecord> rebuild(std::uint64_t step, std::optional<std::uint64_t> gone = std::nullopt);
  [[nodiscard]] std::optional<std::uint64_t> missing_step_below(std::uint64_t step) const;
  // Rebuilds a record. If the step has no record, `state` becomes committed if all bases are found, otherwise retired.
  Result<store::CommitRecord> rebuild_as(std::uint64_t step, store::StepState& state);
  Result<void> mend_newest();
  // Notes the steps without a record that may be checkpoints, so that they are set aside instead of removed.
  void note_unclear();
  Result<void> find_damages();
  Result<void> rewrite_what_is_whole();
  Result<void> set_aside(std::uint64_t step, std::vector<StoreDamage> damages);
  Result<void> set_aside_what_is_not();

  Impl& store_;
  const RepairOptions& options_;
  RepairReport report_;
  std::optional<Error> failure_;                               // of find(), which cannot return an error
  std::set<std::uint64_t> beyond_rebuilding_;                  // steps without a record that cannot be rebuilt
  std::set<std::uint64_t> found_again_;                        // steps that had no record until now
  std::set<std::uint64_t> unclear_;                            // steps without a record that may be checkpoints
  std::map<std::uint64_t, std::vector<StoreDamage>> damages_;  // by step
};

// The policy of the newest checkpoint whose record can be read.
Result<std::optional<Policy>> Store::Impl::Repairer::newest_policy() {
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> steps, store_.directories_.list());
  for (const store::StepEntry& entry : std::views::reverse(steps)) {
    if (entry.state == store::StepState::uncommitted) continue;
    const auto record = store::read_commit_record(store_.file_system_, store_.layout_, entry.step,
                                                  entry.state == store::StepState::retired);
    if (!record) continue;
    if (const auto policy = policy_from_name(record->policy)) return policy;
  }
  return std::optional<Policy>();
}

// Rebuilds bitsnap.json, with a new id, if it is lost or damaged. Its loss rules are lost, and the report says so. The
// policy comes from a commit record.
Result<void> Store::Impl::Repairer::mend_run_record() {
  const std::string path = store_.layout_.run_record();
  auto run = store::read_run_record(store_.file_system_, path);
  if (run) {
    store_.run_ = std::move(*run);
    return options_.dry_run ? Result<void>() : store_.directories_.sync(store_.layout_.root());
  }
  if (!store::is_damage(run.error())) return tl::unexpected(std::move(run).error());
  BITSNAP_ASSIGN(const std::optional<Policy> policy, newest_policy());
  Policy& chosen = *store_.run_.settings.policy;
  chosen = policy.value_or(chosen);
  const bool loses = !quantize::preset_rules(chosen).empty();
  const std::string_view later = loses ? "new checkpoints are lossy as this policy says"
                                       : "new checkpoints are lossless unless loss rules are given";
  report_.mended.push_back(
      {std::nullopt,
       fmt::format("{} rebuilt ({}) with policy {}{}; its loss rules, if any, are lost: {}", store::kRunRecordName,
                   run.error().message(), policy_name(chosen), policy ? " of the newest checkpoint" : "", later)});
  store_.run_.id = SnapshotId{os::random_u64(), os::random_u64()}.to_hex();
  if (options_.dry_run) return {};
  BITSNAP_ASSIGN(const bool synced, store::write_run_record(store_.file_system_, path, store_.run_, true));
  store_.directories_.note_sync(synced);
  return {};
}

// Removes labels.json if it cannot be read. Runs when all records are mended, and before damaged steps are set aside.
Result<void> Store::Impl::Repairer::mend_labels() {
  const auto labels = store::read_label_record(store_.file_system_, store_.layout_);
  if (labels) return options_.dry_run || labels->labels.empty() ? Result<void>() : store_.settle_labels();
  if (!store::is_damage(labels.error())) return tl::unexpected(labels.error());
  report_.mended.push_back({std::nullopt, fmt::format("{} removed ({}); its labels are lost", store::kLabelsName,
                                                      labels.error().message())});
  if (options_.dry_run) return {};
  BITSNAP_TRY(store_.file_system_.remove(store_.layout_.labels()));
  return store_.directories_.sync(store_.layout_.root());
}

Result<void> Store::Impl::Repairer::mend_files() {
  for (auto& [step, known] : store_.known_) {
    if (known.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& record = store_.record_of(step, known);
    if (!record || !record->files) continue;
    store::CommitRecord without = *record;
    const store::ShardFile file = *std::exchange(without.files, std::nullopt);
    std::optional<Error> damage;
    if (const auto opened = store_.reader_->open_file(step, file)) {
      BITSNAP_ASSIGN(std::vector<Damage> found, (*opened)->verify(true, {options_.run.threads, nullptr}));
      if (!found.empty()) damage = std::move(found.front().error);
    } else {
      damage = opened.error();
    }
    if (!damage) continue;
    // A file that the system refuses to read may be whole.
    if (!store::is_damage(*damage)) return tl::unexpected(*std::move(damage));
    BITSNAP_TRY(replace_record(step, known, std::move(without), "its files were lost: " + damage->message()));
  }
  return {};
}

Result<store::CommitRecord> Store::Impl::Repairer::rebuild(std::uint64_t step, std::optional<std::uint64_t> gone) {
  const auto find_base = [&](const SnapshotId& id, std::uint64_t by) {
    std::optional<store::StepReference> found = find(id, by);
    if (!found && gone) found = store::StepReference{id, *gone, 0, false};
    return found;
  };
  return store::rebuild_commit_record(store_.file_system_, store_.layout_, step, find_base, store_.options_.limits);
}

std::optional<std::uint64_t> Store::Impl::Repairer::missing_step_below(std::uint64_t step) const {
  while (step > 0) {
    if (!store_.known_.contains(--step)) return step;
  }
  return std::nullopt;
}

Result<store::CommitRecord> Store::Impl::Repairer::rebuild_as(std::uint64_t step, store::StepState& state) {
  auto rebuilt = rebuild(step);
  const bool was_lost = state == store::StepState::uncommitted;
  if (was_lost) found_again_.insert(step);
  if (rebuilt && was_lost) state = store::StepState::committed;
  if (rebuilt || state == store::StepState::committed || failure_ || !store::is_damage(rebuilt.error())) return rebuilt;
  // The references of a retired checkpoint may be gone; then any missing step stands for them.
  auto retired = rebuild(step, missing_step_below(step));
  if (!retired) return rebuilt;
  state = store::StepState::retired;
  return retired;
}

// The newest checkpoint is never removed. So if only retired ones are left, the newest has lost its record, and is
// rebuilt.
Result<void> Store::Impl::Repairer::mend_newest() {
  for (auto& [step, known] : std::views::reverse(store_.known_)) {
    if (known.state != store::StepState::uncommitted) continue;
    BITSNAP_ASSIGN(const bool is_mended,
                   mend_missing(step, known, "it was missing, and the store has no other checkpoint"));
    if (is_mended) return {};
  }
  return {};
}

// A record is rebuilt with those of the steps that it refers to, which may be later and be mended after it.
Result<void> Store::Impl::Repairer::mend_records() {
  BITSNAP_TRY(mend_records_once());
  bool is_any_left = false;
  for (auto& [step, known] : store_.known_) {
    if (known.state == store::StepState::uncommitted || store_.record_of(step, known)) continue;
    known.record.reset();
    is_any_left = true;
  }
  beyond_rebuilding_.clear();
  return is_any_left ? mend_records_once() : Result<void>();
}

Result<void> Store::Impl::Repairer::mend_records_once() {
  const std::optional<std::uint64_t> last = store_.newest();
  for (auto& [step, known] : store_.known_) {
    if (known.state == store::StepState::uncommitted) {
      // A step that others refer to was committed once, so it has lost its record.
      if (!store_.is_referred_to(step, UnreadableRecord::refers_to_nothing)) {
        // A removal takes the record first and then the files. A step with all its files has probably lost its record.
        if (last && step < *last) {
          BITSNAP_TRY(mend_missing(step, known, "it was missing, and all shard files of the step exist"));
        }
        continue;
      }
    }
    BITSNAP_TRY(mend_record(step, known));
    if (known.state == store::StepState::uncommitted) known.state = store::StepState::committed;
  }
  return {};
}

Result<bool> Store::Impl::Repairer::mend_missing(std::uint64_t step, Known& known, const std::string& why) {
  auto rebuilt = rebuild(step);
  if (failure_) return tl::unexpected(*failure_);
  if (!rebuilt && store::is_damage(rebuilt.error())) return false;
  if (!rebuilt) return tl::unexpected(std::move(rebuilt).error());
  known.state = store::StepState::committed;
  BITSNAP_TRY(replace_record(step, known, std::move(*rebuilt), why));
  return true;
}

std::vector<std::uint64_t> Store::Impl::Repairer::others(std::uint64_t step) const {
  std::vector<std::uint64_t> steps;
  for (auto below = std::make_reverse_iterator(store_.known_.lower_bound(step)); below != store_.known_.rend(); ++below)
    steps.push_back(below->first);
  for (auto above = store_.known_.upper_bound(step); above != store_.known_.end(); ++above)
    steps.push_back(above->first);
  return steps;
}

std::optional<store::StepReference> Store::Impl::Repairer::find(const SnapshotId& id, std::uint64_t by) {
  std::optional<store::StepReference> result;
  for (const std::uint64_t step : others(by)) {
    Known& known = store_.known_[step];
    if (known.state == store::StepState::uncommitted) continue;
    // A later step is asked only if no earlier one holds the snapshot.
    if (result && step > by) break;
    const Result<store::CommitRecord>& other = store_.record_of(step, known);
    if (!other) {
      // This step may hold the snapshot: a file that the system refuses to read now may be whole.
      if (!failure_ && !store::is_damage(other.error())) failure_ = other.error();
      continue;
    }
    const std::optional<store::StepReference> found = find_in(*other, id);
    if (!found) continue;
    // If several steps hold the same content in different codings, nobody knows which one was meant. Then all that the
    // found one refers to counts as needed.
    if (result) {
      result->standalone = false;
      return result;
    }
    result = found;
  }
  return result ? result : find_uncommitted(id, by);
}

std::optional<store::StepReference> Store::Impl::Repairer::find_uncommitted(const SnapshotId& id, std::uint64_t by) {
  for (const std::uint64_t step : others(by)) {
    Known& known = store_.known_[step];
    // A step that is just being rebuilt asks for another one.
    if (known.state != store::StepState::uncommitted || !beyond_rebuilding_.insert(step).second) continue;
    store::StepState state = store::StepState::uncommitted;
    auto rebuilt = rebuild_as(step, state);
    if (!rebuilt) {
      // A file that the system refuses to read may be whole.
      if (!failure_ && !store::is_damage(rebuilt.error())) failure_ = std::move(rebuilt).error();
      continue;
    }
    beyond_rebuilding_.erase(step);
    const std::optional<store::StepReference> found = find_in(*rebuilt, id);
    if (!found) continue;
    known.state = state;
    if (auto replaced =
            replace_record(step, known, std::move(*rebuilt), "it was missing, and other checkpoints refer to the step");
        !replaced) {
      failure_ = std::move(replaced).error();
    }
    return found;
  }
  return std::nullopt;
}

Result<void> Store::Impl::Repairer::replace_record(std::uint64_t step, Known& known, store::CommitRecord record,
                                                   const std::string& why) {
  report_.mended.push_back({step, fmt::format("record rebuilt ({})", why)});
  if (options_.dry_run) {
    store_.reader_->assume(record);
  } else {
    BITSNAP_ASSIGN(const bool synced, store::replace_commit_record(store_.file_system_, store_.layout_, record,
                                                                   known.state == store::StepState::retired));
    store_.directories_.note_sync(synced);
  }
  known.set_record(std::move(record));
  return {};
}

Result<void> Store::Impl::Repairer::mend_record(std::uint64_t step, Known& known) {
  const Result<store::CommitRecord>& record = store_.record_of(step, known);
  if (record || !store::is_damage(record.error())) return {};
  const Error damage = record.error();
  auto rebuilt = rebuild_as(step, known.state);
  if (failure_) return tl::unexpected(*failure_);
  if (rebuilt) return replace_record(step, known, std::move(*rebuilt), damage.message());
  // The report names the damage of the record, and why the record could not be rebuilt.
  if (!store::is_damage(rebuilt.error())) return tl::unexpected(std::move(rebuilt).error());
  known.record = std::make_shared<const Result<store::CommitRecord>>(
      tl::unexpected(Error(damage.kind(), fmt::format("{}; the record cannot be rebuilt: {}", damage.message(),
                                                      rebuilt.error().message()))));
  return {};
}

void Store::Impl::Repairer::note_unclear() {
  const std::optional<std::uint64_t> last = store_.newest();
  for (const auto& [step, known] : store_.known_) {
    if (known.state != store::StepState::uncommitted) continue;
    const bool may_be_checkpoint =
        last ? step < *last && store_.is_referred_to(step, UnreadableRecord::may_refer_to_any) : store_.has_retired();
    if (may_be_checkpoint) unclear_.insert(step);
  }
}

Result<void> Store::Impl::Repairer::find_damages() {
  std::vector<const store::CommitRecord*> committed;
  std::vector<const store::CommitRecord*> retired;
  for (auto& [step, known] : store_.known_) {
    if (known.state == store::StepState::uncommitted) {
      if (!unclear_.contains(step)) continue;
      damages_[step].push_back(
          store::record_damage(step, false, Error(ErrorKind::corrupt, "the record is missing and cannot be rebuilt")));
      continue;
    }
    const bool is_retired = known.state == store::StepState::retired;
    const Result<store::CommitRecord>& record = store_.record_of(step, known);
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

// An undamaged checkpoint must not need a damaged step. It must not need a retired step that refers to a damaged one
// either: such a step is readable only in part, and nobody was promised more of it.
Result<void> Store::Impl::Repairer::rewrite_what_is_whole() {
  std::set<std::uint64_t> dropped;
  std::vector<std::uint64_t> whole;
  for (const auto& [step, known] : store_.known_) {
    if (known.state != store::StepState::uncommitted && damages_.contains(step)) dropped.insert(step);
    if (known.state == store::StepState::committed && !damages_.contains(step)) whole.push_back(step);
  }
  report_.checkpoints = whole.size();
  for (std::size_t before = 0; before != dropped.size();) {
    before = dropped.size();
    for (auto& [step, known] : store_.known_) {
      if (known.state != store::StepState::retired || dropped.contains(step)) continue;
      if (store::refers_to(*store_.record_of(step, known), dropped)) dropped.insert(step);
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
  for (auto& [step, found] : std::views::reverse(damages_)) BITSNAP_TRY(set_aside(step, std::move(found)));
  // A step was rebuilt as retired because another step referred to it. If that other step is lost, this one is set
  // aside, too.
  for (const std::uint64_t step : std::views::reverse(found_again_)) {
    const auto known = store_.known_.find(step);
    if (known == store_.known_.end() || known->second.state != store::StepState::retired) continue;
    if (store_.is_referred_to(step, UnreadableRecord::refers_to_nothing)) continue;
    const Error lost(ErrorKind::corrupt, "the record was missing, and only lost checkpoints refer to the step");
    BITSNAP_TRY(set_aside(step, {store::record_damage(step, false, lost)}));
  }
  std::ranges::sort(report_.dropped, {}, &RepairReport::Dropped::step);
  return {};
}

Result<RepairReport> Store::Impl::Repairer::run() {
  BITSNAP_TRY(mend_run_record());
  BITSNAP_TRY(store_.refresh_known());
  for (const auto& entry : store_.known_) {
    // A repair that was killed may have left an unsynced record.
    if (!options_.dry_run) BITSNAP_TRY(store_.directories_.sync_step(entry.first));
  }
  note_unclear();
  const bool has_lost_newest = !store_.newest() && store_.has_retired();
  if (has_lost_newest) BITSNAP_TRY(mend_newest());
  BITSNAP_TRY(mend_records());
  BITSNAP_TRY(mend_labels());
  BITSNAP_TRY(mend_files());
  BITSNAP_TRY(find_damages());
  BITSNAP_TRY(rewrite_what_is_whole());
  BITSNAP_TRY(set_aside_what_is_not());
  BITSNAP_ASSIGN(report_.strays, store_.remove_strays(options_.dry_run, true));
  return std::move(report_);
}

Result<RepairReport> Store::Impl::repair(os::FileSystem& file_system, const std::string& path,
                                         const RepairOptions& options) {
  if (path.empty()) return fail(ErrorKind::invalid_argument, "the path of the store must not be empty");
  Impl impl(file_system, path, {.access = options.dry_run ? StoreAccess::read : StoreAccess::write}, nullptr);
  BITSNAP_ASSIGN(const os::FileInfo checkpoints, impl.file_system_.stat(impl.layout_.checkpoints()));
  BITSNAP_ASSIGN(const os::FileInfo record, impl.file_system_.stat(impl.layout_.run_record()));
  BITSNAP_ASSIGN(const os::FileInfo lock, impl.file_system_.stat(impl.layout_.lock()));
  // If `checkpoints` is no directory, listing it gives the error.
  bool is_store = checkpoints.exists && (record.exists || lock.exists);
  if (checkpoints.exists && !is_store) {
    BITSNAP_ASSIGN(is_store, impl.has_checkpoints());
  }
  if (!is_store) return fail(ErrorKind::not_found, fmt::format("{}: no store found", impl.layout_.root()));
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
