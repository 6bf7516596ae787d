// Repair: records made again, whole checkpoints freed of damaged ones, and these set aside.
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

bool refers(const store::CommitRecord& record, const std::set<std::uint64_t>& steps) {
  return std::ranges::any_of(record.shards, [&](const store::ShardFile& file) {
    return std::ranges::any_of(file.references, [&](const auto& r) { return steps.contains(r.step); });
  });
}

}  // namespace

Result<std::unique_ptr<Store::Impl>> Store::Impl::open_for_repair(os::FileSystem& file_system, const std::string& path,
                                                                  bool dry_run) {
  if (path.empty()) return fail(ErrorKind::invalid_argument, "a store needs a path");
  StoreOptions options;
  options.access = dry_run ? StoreAccess::read : StoreAccess::write;
  std::unique_ptr<Impl> impl(new Impl(file_system, path, options, nullptr));
  BITSNAP_ASSIGN(const os::FileInfo checkpoints, file_system.stat(impl->layout_.checkpoints()));
  BITSNAP_ASSIGN(const os::FileInfo record, file_system.stat(impl->layout_.run_record()));
  BITSNAP_ASSIGN(const os::FileInfo lock, file_system.stat(impl->layout_.lock()));
  bool is_store = checkpoints.is_directory && (record.exists || lock.exists);
  if (checkpoints.is_directory && !is_store) {
    BITSNAP_ASSIGN(const std::vector<store::StepEntry> steps, impl->directories_.list());
    is_store = std::ranges::any_of(steps, [](const auto& s) { return s.state != store::StepState::uncommitted; });
  }
  if (!is_store) return fail(ErrorKind::not_found, fmt::format("{}: there is no store", impl->layout_.root()));
  if (!dry_run) {
    BITSNAP_ASSIGN(store::WriteGuard guard, impl->begin_writing(os::LockKind::exclusive));
    impl->lock_ = std::move(guard.lock);
  }
  return impl;
}

// One repair. Records first, from the oldest on, as each is made of what those before it say.
class Store::Impl::Repairer {
 public:
  Repairer(Impl& store, const RepairOptions& options) : store_(store), options_(options) {}

  Result<RepairReport> run();

 private:
  Result<void> mend_run_record();
  Result<std::optional<Policy>> newest_policy();
  Result<void> mend_records();
  Result<void> mend_record(std::uint64_t step, Known& known);
  Result<void> mend_unneeded(std::uint64_t step, Known& known);
  // Where a snapshot of that id stands before that step.
  std::optional<store::StepReference> find(const SnapshotId& id, std::uint64_t before);
  // The same among those that have no record; the one that it is gets a new one. It may have been pruned, and its files
  // not all removed: that cannot be told from a record that was lost.
  std::optional<store::StepReference> find_uncommitted(const SnapshotId& id, std::uint64_t before);
  Result<void> replace_record(std::uint64_t step, Known& known, store::CommitRecord record, const std::string& why);
  // What the files say; for bases that are nowhere stands the step `gone`, if it is given.
  Result<store::CommitRecord> rebuild(std::uint64_t step, std::optional<std::uint64_t> gone = std::nullopt);
  [[nodiscard]] std::optional<std::uint64_t> missing_step_below(std::uint64_t step) const;
  // As what it was, which is not known of one without a record: a checkpoint if it can be one, else retired.
  Result<store::CommitRecord> rebuild_as(std::uint64_t step, store::StepState& state);
  Result<void> mend_newest();
  // Those without a record that may be checkpoints: they are not removed with what was never committed.
  void note_unclear();
  Result<void> find_damages();
  Result<void> rewrite_what_is_whole();
  Result<void> set_aside(std::uint64_t step, std::vector<StoreDamage> damages);
  Result<void> set_aside_what_is_not();

  Impl& store_;
  const RepairOptions& options_;
  RepairReport report_;
  std::optional<Error> failure_;                               // of a search, which cannot say so itself
  std::set<std::uint64_t> beyond_rebuilding_;                  // of those without a record
  std::set<std::uint64_t> found_again_;                        // without a record until now
  std::set<std::uint64_t> unclear_;                            // without a record, but perhaps checkpoints
  std::map<std::uint64_t, std::vector<StoreDamage>> damages_;  // by step
};

// Of the newest checkpoint whose record can be read.
Result<std::optional<Policy>> Store::Impl::Repairer::newest_policy() {
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> steps, store_.directories_.list());
  std::map<std::uint64_t, store::StepState> newest;
  for (const store::StepEntry& entry : steps) newest.emplace(entry.step, entry.state);
  for (const auto& [step, state] : std::views::reverse(newest)) {
    if (state == store::StepState::uncommitted) continue;
    const auto record =
        store::read_commit_record(store_.file_system_, store_.layout_, step, state == store::StepState::retired);
    if (!record) continue;
    if (const auto policy = policy_from_name(record->policy)) return policy;
  }
  return std::optional<Policy>();
}

// bitsnap.json, if it is lost, under a new id. What it alone knew, as rules of loss, nobody knows any more: the policy
// is on record, and whoever had other rules is told that they are gone.
Result<void> Store::Impl::Repairer::mend_run_record() {
  const std::string path = store_.layout_.run_record();
  auto run = store::read_run_record(store_.file_system_, path);
  if (run) {
    store_.run_ = std::move(*run);
    return options_.dry_run ? Result<void>() : store_.directories_.sync(store_.layout_.root());
  }
  if (!store::is_damage(run.error())) return tl::unexpected(std::move(run).error());
  BITSNAP_ASSIGN(const std::optional<Policy> policy, newest_policy());
  store_.run_.policy = policy.value_or(store_.run_.policy);
  const bool loses = !quantize::preset_rules(store_.run_.policy).empty();
  const std::string_view then = loses ? "what it says may be lost is lost from now on, too"
                                      : "nothing is lost from now on, unless it is asked for";
  report_.mended.push_back(
      {std::nullopt,
       fmt::format("{} made again ({}); with the policy {}{}, and without rules of loss, if it had any: {}",
                   store::kRunRecordName, run.error().message(), policy_name(store_.run_.policy),
                   policy ? " of the newest checkpoint" : "", then)});
  store_.run_.id = SnapshotId{os::random_u64(), os::random_u64()}.to_hex();
  if (options_.dry_run) return {};
  BITSNAP_ASSIGN(const bool synced, store::write_run_record(store_.file_system_, path, store_.run_, true));
  store_.directories_.note_sync(synced);
  return {};
}

Result<store::CommitRecord> Store::Impl::Repairer::rebuild(std::uint64_t step, std::optional<std::uint64_t> gone) {
  const auto find_base = [&](const SnapshotId& id, std::uint64_t before) {
    std::optional<store::StepReference> found = find(id, before);
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
  // What a retired checkpoint referred to may have gone: then any step that is not there stands for it.
  auto retired = rebuild(step, missing_step_below(step));
  if (!retired) return rebuilt;
  state = store::StepState::retired;
  return retired;
}

// The newest is never given up: where there are only retired ones it has lost its record, and is what is left of it.
Result<void> Store::Impl::Repairer::mend_newest() {
  for (auto& [step, known] : std::views::reverse(store_.known_)) {
    if (known.state != store::StepState::uncommitted) continue;
    auto rebuilt = rebuild(step);
    if (failure_) return tl::unexpected(*failure_);
    if (!rebuilt && !store::is_damage(rebuilt.error())) return tl::unexpected(std::move(rebuilt).error());
    if (!rebuilt) continue;
    known.state = store::StepState::committed;
    return replace_record(step, known, std::move(*rebuilt), "there is none, nor another checkpoint");
  }
  return {};
}

Result<void> Store::Impl::Repairer::mend_records() {
  const std::optional<std::uint64_t> last = store_.newest();
  for (auto& [step, known] : store_.known_) {
    if (known.state == store::StepState::uncommitted) {
      // What others refer to was committed once: its record is what is missing.
      if (!store_.is_referred_to(step, UnreadableRecord::refers_to_nothing)) {
        if (last && step < *last) BITSNAP_TRY(mend_unneeded(step, known));
        continue;
      }
    }
    BITSNAP_TRY(mend_record(step, known));
    if (known.state == store::StepState::uncommitted) known.state = store::StepState::committed;
  }
  return {};
}

// A removal takes the record first and the files next: with all of its files it has most likely lost the record.
Result<void> Store::Impl::Repairer::mend_unneeded(std::uint64_t step, Known& known) {
  auto rebuilt = rebuild(step);
  if (failure_) return tl::unexpected(*failure_);
  if (!rebuilt) return store::is_damage(rebuilt.error()) ? Result<void>() : tl::unexpected(std::move(rebuilt).error());
  known.state = store::StepState::committed;
  return replace_record(step, known, std::move(*rebuilt), "there is none, and all of its files are there");
}

std::optional<store::StepReference> Store::Impl::Repairer::find(const SnapshotId& id, std::uint64_t before) {
  std::optional<store::StepReference> result;
  for (auto entry = store_.known_.lower_bound(before); entry != store_.known_.begin();) {
    --entry;
    if (entry->second.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& earlier = store_.record_of(entry->first, entry->second);
    if (!earlier) {
      // It may hold what is looked for: what the system refuses to read now may be whole.
      if (!failure_ && !store::is_damage(earlier.error())) failure_ = earlier.error();
      continue;
    }
    const auto file = std::ranges::find(earlier->shards, id, &store::ShardFile::id);
    if (file == earlier->shards.end()) continue;
    // Of several with that content, coded in different ways, nobody can say which it was: all that it refers to
    // counts.
    if (result) {
      result->standalone = false;
      return result;
    }
    result = store::StepReference{id, entry->first, static_cast<std::uint32_t>(file - earlier->shards.begin()), true};
  }
  return result ? result : find_uncommitted(id, before);
}

std::optional<store::StepReference> Store::Impl::Repairer::find_uncommitted(const SnapshotId& id,
                                                                            std::uint64_t before) {
  for (auto entry = store_.known_.lower_bound(before); entry != store_.known_.begin();) {
    --entry;
    auto& [step, known] = *entry;
    if (known.state != store::StepState::uncommitted) continue;
    if (beyond_rebuilding_.contains(step)) continue;
    store::StepState state = store::StepState::uncommitted;
    auto rebuilt = rebuild_as(step, state);
    if (!rebuilt) {
      beyond_rebuilding_.insert(step);
      // What the system refuses to read may be whole.
      if (!failure_ && !store::is_damage(rebuilt.error())) failure_ = std::move(rebuilt).error();
      continue;
    }
    const auto file = std::ranges::find(rebuilt->shards, id, &store::ShardFile::id);
    if (file == rebuilt->shards.end()) continue;
    const auto shard = static_cast<std::uint32_t>(file - rebuilt->shards.begin());
    known.state = state;
    if (auto replaced = replace_record(step, known, std::move(*rebuilt), "there is none, and others refer to it");
        !replaced) {
      failure_ = std::move(replaced).error();
    }
    return store::StepReference{id, step, shard, true};
  }
  return std::nullopt;
}

Result<void> Store::Impl::Repairer::replace_record(std::uint64_t step, Known& known, store::CommitRecord record,
                                                   const std::string& why) {
  report_.mended.push_back({step, fmt::format("record made again ({})", why)});
  if (options_.dry_run) {
    store_.reader_->assume(record);
  } else {
    BITSNAP_ASSIGN(const bool synced, store::replace_commit_record(store_.file_system_, store_.layout_, record,
                                                                   known.state == store::StepState::retired));
    store_.directories_.note_sync(synced);
  }
  known.record_bytes = store::serialize_commit_record(record).size();
  known.record = std::make_shared<const Result<store::CommitRecord>>(std::move(record));
  return {};
}

Result<void> Store::Impl::Repairer::mend_record(std::uint64_t step, Known& known) {
  const Result<store::CommitRecord>& record = store_.record_of(step, known);
  if (record || !store::is_damage(record.error())) return {};
  const Error damage = record.error();
  auto rebuilt = rebuild_as(step, known.state);
  if (failure_) return tl::unexpected(*failure_);
  if (rebuilt) return replace_record(step, known, std::move(*rebuilt), damage.message());
  // The record's damage is what is reported; why it could not be made again belongs to it.
  if (!store::is_damage(rebuilt.error())) return tl::unexpected(std::move(rebuilt).error());
  known.record = std::make_shared<const Result<store::CommitRecord>>(tl::unexpected(Error(
      damage.kind(), fmt::format("{}; it cannot be made again: {}", damage.message(), rebuilt.error().message()))));
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
      damages_[step].push_back({step, store::RunLayout::relative_file(step, store::kCommitName), "",
                                Error(ErrorKind::corrupt, "is not there, and cannot be made again")});
      continue;
    }
    const bool is_retired = known.state == store::StepState::retired;
    const Result<store::CommitRecord>& record = store_.record_of(step, known);
    if (record) {
      (is_retired ? retired : committed).push_back(&*record);
      continue;
    }
    if (!store::is_damage(record.error())) return tl::unexpected(record.error());
    const std::string_view name = is_retired ? store::kRetiredName : store::kCommitName;
    damages_[step].push_back({step, store::RunLayout::relative_file(step, name), "", record.error()});
  }
  // What is kept for others need not be restorable, but no damage is to stay in it: somebody might come to need it.
  const auto verify = [&](std::span<const store::CommitRecord* const> records, bool decode, const RunOptions& run) {
    return store_.verify_records(*store_.reader_, records, decode, run);
  };
  BITSNAP_ASSIGN(std::vector<StoreDamage> found, verify(committed, true, options_.run));
  BITSNAP_ASSIGN(std::vector<StoreDamage> found_in_retired, verify(retired, false, {options_.run.threads, nullptr}));
  std::ranges::move(found_in_retired, std::back_inserter(found));
  for (StoreDamage& damage : found) {
    // A file that the system refuses to read may be whole.
    if (!store::is_damage(damage.error)) return tl::unexpected(std::move(damage.error));
    damages_[damage.step].push_back(std::move(damage));
  }
  return {};
}

// What is whole must not need what is not. Nor what was retired and refers to it: such a file can be read only in part,
// and nobody promised more of it.
Result<void> Store::Impl::Repairer::rewrite_what_is_whole() {
  std::set<std::uint64_t> dropped;
  std::vector<std::uint64_t> whole;
  for (auto& [step, known] : store_.known_) {
    if (known.state == store::StepState::uncommitted) continue;
    if (damages_.contains(step)) {
      dropped.insert(step);
      continue;
    }
    const store::CommitRecord& record = *store_.record_of(step, known);
    if (known.state == store::StepState::committed) {
      whole.push_back(step);
      ++report_.checkpoints;
    } else if (refers(record, dropped)) {
      dropped.insert(step);
    }
  }
  if (options_.dry_run || dropped.empty()) return {};
  std::vector<PruneReport::Rewritten> rewritten;
  BITSNAP_TRY(store_.rewrite_all(dropped, whole, {options_.run.threads, nullptr}, rewritten));
  for (const PruneReport::Rewritten& entry : rewritten) {
    report_.mended.push_back({entry.step, "written again without what is damaged"});
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
  // What was taken for retired, for the sake of one that is lost after all, may be one itself.
  for (const std::uint64_t step : std::views::reverse(found_again_)) {
    const auto known = store_.known_.find(step);
    if (known == store_.known_.end() || known->second.state != store::StepState::retired) continue;
    if (store_.is_referred_to(step, UnreadableRecord::refers_to_nothing)) continue;
    BITSNAP_TRY(set_aside(step, {{step, store::RunLayout::relative_file(step, store::kCommitName), "",
                                  Error(ErrorKind::corrupt, "was not there, and what it refers to is not")}}));
  }
  std::ranges::sort(report_.dropped, {}, &RepairReport::Dropped::step);
  return {};
}

Result<RepairReport> Store::Impl::Repairer::run() {
  BITSNAP_TRY(mend_run_record());
  BITSNAP_TRY(store_.refresh_known());
  for (const auto& entry : store_.known_) {
    // A repair that was killed may have left a record that was never synced.
    if (!options_.dry_run) BITSNAP_TRY(store_.directories_.sync_step(entry.first));
  }
  note_unclear();
  const bool has_lost_newest = !store_.newest() && store_.has_retired();
  if (has_lost_newest) BITSNAP_TRY(mend_newest());
  BITSNAP_TRY(mend_records());
  BITSNAP_TRY(find_damages());
  BITSNAP_TRY(rewrite_what_is_whole());
  BITSNAP_TRY(set_aside_what_is_not());
  BITSNAP_ASSIGN(report_.strays, store_.remove_strays(options_.dry_run, true));
  return std::move(report_);
}

Result<RepairReport> Store::Impl::repair(const RepairOptions& options) { return Repairer(*this, options).run(); }

namespace store {

Result<RepairReport> repair_store(os::FileSystem& file_system, const std::string& path, const RepairOptions& options) {
  return no_throw("repairing", [&]() -> Result<RepairReport> {
    BITSNAP_ASSIGN(const auto impl, Store::Impl::open_for_repair(file_system, path, options.dry_run));
    return impl->repair(options);
  });
}

}  // namespace store
}  // namespace bitsnap
