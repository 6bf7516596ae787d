// Pruning: removes checkpoints. A step that others need is retired, or the others are rewritten without it.
#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "store/coding_plan.hpp"
#include "store/live_bytes.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

using store::is_damage;

bool is_whole_checkpoint(const store::StepNode& node) {
  return node.state == store::StepState::committed && !node.is_damaged && !node.is_kept_as_damaged;
}

bool refers_to(const store::StepNode& node, const std::set<std::uint64_t>& steps) {
  return std::ranges::any_of(node.references, [&](const auto& reference) { return steps.contains(reference.step); });
}

}  // namespace

// One prune or removal, or a dry run.
class Store::Impl::Pruner {
 public:
  // Keeps what the retention says.
  Pruner(Impl& store, Retention retention, const PruneOptions& options, std::optional<std::uint64_t> just_saved)
      : store_(store),
        retention_(std::move(retention)),
        is_of_retention_(retention_ == store.options_.retention),
        options_(options),
        just_saved_(just_saved) {}
  // Keeps all checkpoints but `removed`, which are ascending.
  Pruner(Impl& store, const std::vector<std::uint64_t>& removed, const PruneOptions& options)
      : store_(store),
        is_of_retention_(store.has_retention() && !store.options_.prunes),
        removed_(&removed),
        options_(options) {}

  Result<PruneReport> run();

 private:
  // Reads the records: which steps exist, and what they refer to.
  Result<void> look();
  // Marks the checkpoints that have a label.
  Result<void> note_labelled();
  // Marks the newest checkpoint as damaged if a file is missing or has the wrong size, then the one before it, until
  // one is whole. Passes over those that are removed by name.
  Result<void> note_missing_files();
  // Returns an error if a step that is named is not there, or if no checkpoint would stay.
  Result<void> check_steps() const;
  Result<void> check_that_one_stays() const;
  [[nodiscard]] bool is_to_go(std::uint64_t step) const {
    return removed_ != nullptr && std::ranges::binary_search(*removed_, step);
  }
  [[nodiscard]] store::RetentionPlan plan(std::optional<std::uint64_t> next_base) const {
    return removed_ != nullptr ? store::plan_removal(nodes_, *removed_, next_base)
                               : store::plan_retention(nodes_, retention_, next_base);
  }
  // What is written again: the needed steps that other steps are rewritten without, and what they are coded against.
  Result<store::RecodingPlan> choose_recoding(std::optional<std::uint64_t> next_base);
  // The needed steps that are held for unchanged chunks alone, if dropping them pays.
  Result<std::set<std::uint64_t>> choose_dropped();
  Result<void> recode(const store::RecodingPlan& recoding);
  void report_removed();
  void report_plan();
  // Removes what is neither kept nor needed, and retires what is only needed. `before_recoding`: what is needed may not
  // be for long.
  Result<void> carry_out(bool before_recoding);

  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t step) const {
    return std::ranges::lower_bound(nodes_, step, {}, &store::StepNode::step)->bytes;
  }
  const Result<store::CommitRecord>& record_of(const store::StepNode& node) { return store_.known_.record(node.step); }

  Impl& store_;
  const Retention retention_ = {};
  const bool is_of_retention_ = false;                         // more checkpoints follow, with the same retention
  const std::vector<std::uint64_t>* const removed_ = nullptr;  // nullptr: the retention decides
  const PruneOptions& options_;
  const std::optional<std::uint64_t> just_saved_ = std::nullopt;
  std::vector<store::StepNode> nodes_;  // by step
  bool has_waiting_ = false;            // shards that refer to steps and wait for their commit
  store::RetentionPlan plan_;
  PruneReport report_;
};

Result<void> Store::Impl::Pruner::look() {
  nodes_.clear();
  const std::optional<std::uint64_t> newest = store_.known_.newest();
  for (auto& [step, known] : store_.known_.all()) {
    store::StepNode& node = nodes_.emplace_back();
    node.step = step;
    node.state = known.state;
    if (known.state == store::StepState::uncommitted) {
      BITSNAP_ASSIGN(const std::vector<store::ShardRecord> pending, store_.directories_.pending_shards(step));
      for (const store::ShardRecord& shard : pending) store::add_references(node, shard.file);
      has_waiting_ = has_waiting_ || !node.references.empty();
      continue;
    }
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    if (!record) {
      // An error of the system may be temporary, so the prune fails instead of judging the checkpoint.
      if (record.error().kind() != ErrorKind::corrupt && record.error().kind() != ErrorKind::unsupported) {
        Error error = record.error();
        known.record.reset();
        return tl::unexpected(std::move(error));
      }
      node.is_damaged = true;
      continue;
    }
    store::describe(node, known, *record);
    if (step != newest || known.state != store::StepState::committed) continue;
    BITSNAP_ASSIGN(const std::vector<store::ShardRecord> waiting,
                   store_.directories_.waiting_replacements(step, *record));
    for (const store::ShardRecord& shard : waiting) store::add_references(node, shard.file);
    has_waiting_ = has_waiting_ || !waiting.empty();
  }
  BITSNAP_TRY(note_labelled());
  return note_missing_files();
}

Result<void> Store::Impl::Pruner::note_labelled() {
  if (!retention_.keep_labelled) return {};
  BITSNAP_ASSIGN(const std::vector<StepLabel> labels, store_.labels_.all());
  for (store::StepNode& node : nodes_) {
    node.is_labelled = std::ranges::find(labels, node.step, &StepLabel::step) != labels.end();
  }
  return {};
}

Result<void> Store::Impl::Pruner::note_missing_files() {
  for (store::StepNode& node : std::views::reverse(nodes_)) {
    if (!is_whole_checkpoint(node) || is_to_go(node.step)) continue;
    for (const store::ShardFile& file : record_of(node)->shards) {
      BITSNAP_ASSIGN(const os::FileInfo info, store_.file_system_.stat(store_.layout_.step_file(node.step, file.file)));
      if (!info.exists || info.size_bytes != file.bytes) node.is_damaged = true;
    }
    if (!node.is_damaged) return {};
  }
  return {};
}

Result<store::RecodingPlan> Store::Impl::Pruner::choose_recoding(std::optional<std::uint64_t> next_base) {
  store::RecodingPlan recoding;
  // A damaged checkpoint may need any step, one that is kept as damaged cannot be written again, and shards that wait
  // for their commit need their bases. So nothing is written again.
  const auto stays_as_it_is = [](const store::StepNode& node) { return node.is_damaged || node.is_kept_as_damaged; };
  if (has_waiting_ || std::ranges::any_of(nodes_, stays_as_it_is)) return recoding;
  if (options_.reencode == Reencode::when_it_pays) {
    store::CodingPattern pattern;
    if (is_of_retention_) pattern = store::choose_pattern(store::shares_of(nodes_), plan_.kept.size());
    recoding = store::plan_recoding(nodes_, plan_, pattern, *store_.settings_.max_depth, next_base);
    if (recoding.dropped.empty() && !plan_.needed.empty()) {
      BITSNAP_ASSIGN(recoding.dropped, choose_dropped());
    }
  }
  // A step above the newest checkpoint that others are coded against would be in the way of the next save.
  for (const auto& needed : plan_.needed) {
    const bool is_above = !plan_.kept.empty() && needed.step > plan_.kept.back();
    if (is_above || options_.reencode == Reencode::always) recoding.dropped.insert(needed.step);
  }
  return recoding;
}

Result<std::set<std::uint64_t>> Store::Impl::Pruner::choose_dropped() {
  std::set<std::uint64_t> dropped;
  // The links of a chain disappear with the checkpoints that are coded against them. A step that is held only for its
  // unchanged chunks would stay for ever, with all other bytes of its files.
  std::set<std::uint64_t> chains;
  std::set<std::uint64_t> whole;
  for (const std::uint64_t step : plan_.kept) {
    whole.insert(step);
    for (std::optional<std::uint64_t> at = step; at && chains.insert(*at).second;) {
      const auto known = store_.known_.all().find(*at);
      if (known == store_.known_.all().end()) break;
      const Result<store::CommitRecord>& record = store_.known_.record(*at);
      at = record ? record->base : std::nullopt;
    }
  }
  std::set<std::uint64_t> held;
  for (const auto& needed : plan_.needed) {
    if (needed.whole) whole.insert(needed.step);
    if (!chains.contains(needed.step)) held.insert(needed.step);
  }
  if (held.empty()) return dropped;

  store::LiveChunks live;
  for (const store::StepNode& node : nodes_) {
    if (!whole.contains(node.step) || !refers_to(node, held)) continue;
    for (const store::ShardFile& file : record_of(node)->shards) {
      BITSNAP_ASSIGN(const auto snapshot, store_.reader_->open_file(node.step, file));
      live.note(*snapshot, file, held);
    }
  }
  std::uint64_t dead_bytes = 0;
  for (const store::StepNode& node : nodes_) {
    if (!held.contains(node.step)) continue;
    std::uint64_t live_bytes = 0;
    const store::CommitRecord& record = *record_of(node);
    for (std::uint32_t shard = 0; shard < record.shards.size(); ++shard) {
      if (record.shards[shard].is_link) continue;  // equal shards have equal live chunks
      BITSNAP_ASSIGN(const auto snapshot, store_.reader_->open_file(node.step, record.shards[shard], true));
      live_bytes += live.bytes(node.step, shard, *snapshot);
    }
    if (live_bytes < node.bytes / 2) {
      dropped.insert(node.step);
      dead_bytes += node.bytes - live_bytes;
    }
  }
  std::uint64_t written_bytes = 0;
  for (const store::StepNode& node : nodes_) {
    if (whole.contains(node.step) && !dropped.contains(node.step) && refers_to(node, dropped)) {
      written_bytes += node.bytes;
    }
  }
  if (dead_bytes <= written_bytes) dropped.clear();
  return dropped;
}

// Damage must not keep old checkpoints from being removed. If a file cannot be read or rewritten, it stays as it is,
// unless the caller demanded rewriting.
Result<void> Store::Impl::Pruner::recode(const store::RecodingPlan& recoding) {
  const std::set<std::uint64_t>& dropped = recoding.dropped;
  std::vector<std::uint64_t> whole = plan_.kept;
  for (const auto& needed : plan_.needed) {
    if (needed.whole && !dropped.contains(needed.step)) whole.push_back(needed.step);
  }
  std::ranges::sort(whole);
  if (options_.dry_run) {
    for (store::StepNode& node : nodes_) {
      const auto onto = recoding.onto.find(node.step);
      const bool is_dependent = std::ranges::binary_search(whole, node.step) && refers_to(node, dropped);
      if (onto == recoding.onto.end() && !is_dependent) continue;
      report_.rewritten.push_back({node.step, node.bytes, 0});
      std::erase_if(node.references, [&](const auto& r) { return dropped.contains(r.step); });
      if (onto != recoding.onto.end()) node.references = {{onto->second, false}};
    }
    return {};
  }
  Result<void> rewritten =
      store_.rewrite_all(dropped, whole, recoding.onto, options_.run, report_.rewritten, just_saved_);
  if (!rewritten && (options_.reencode == Reencode::always || !is_damage(rewritten.error()))) return rewritten;
  return look();
}

void Store::Impl::Pruner::report_removed() {
  for (const std::uint64_t step : plan_.removed) {
    const bool was_pruned = store_.known_[step].state == store::StepState::retired;
    report_.removed.push_back({step, bytes_of(step), was_pruned});
    report_.removed_bytes += report_.removed.back().bytes;
  }
}

void Store::Impl::Pruner::report_plan() {
  report_.dry_run = options_.dry_run;
  report_.kept = plan_.kept;
  const auto was_pruned = [&](std::uint64_t step) { return store_.known_[step].state == store::StepState::retired; };
  for (const auto& needed : plan_.needed) {
    report_.needed.push_back({needed.step, bytes_of(needed.step), needed.by, was_pruned(needed.step)});
    report_.needed_bytes += report_.needed.back().bytes;
  }
  for (const std::uint64_t step : plan_.kept) {
    const store::StepNode& node = *std::ranges::lower_bound(nodes_, step, {}, &store::StepNode::step);
    report_.kept_raw_bytes += node.raw_bytes;
    report_.kept_bytes += node.bytes;
  }
  report_removed();
  std::ranges::sort(report_.removed, {}, &PruneReport::Removed::step);
}

// Nothing is removed before what depends on it.
Result<void> Store::Impl::Pruner::carry_out(bool before_recoding) {
  const auto is_removed = [&](const store::StepNode& node) {
    return node.state == store::StepState::committed && !std::ranges::binary_search(plan_.kept, node.step);
  };
  if (std::ranges::any_of(nodes_, is_removed)) BITSNAP_TRY(store_.labels_.settle());
  std::vector<std::uint64_t> unwanted = plan_.removed;
  for (const store::StepNode& node : nodes_) {
    if (is_removed(node)) unwanted.push_back(node.step);
  }
  for (const std::uint64_t step : store::removal_order(nodes_, unwanted)) {
    const bool is_needed = !std::ranges::binary_search(plan_.removed, step);
    if (is_needed && before_recoding) continue;
    BITSNAP_TRY(is_needed ? store_.retire_step(step) : store_.remove_step(step));
  }
  return {};
}

Result<void> Store::Impl::Pruner::check_steps() const {
  for (const std::uint64_t step : removed_ != nullptr ? *removed_ : retention_.keep) {
    const auto known = store_.known_.all().find(step);
    if (known == store_.known_.all().end() || known->second.state != store::StepState::committed) {
      return tl::unexpected(store_.directories_.not_found(step));
    }
  }
  return {};
}

// A store with retired steps and no checkpoint has lost the record of its newest one, and is left to a repair. So a
// removal never leaves such a store, not even if it is killed, and a checkpoint that can be read always stays.
Result<void> Store::Impl::Pruner::check_that_one_stays() const {
  if (removed_ == nullptr || removed_->empty()) return {};
  const auto stays = [&](const store::StepNode& node) { return is_whole_checkpoint(node) && !is_to_go(node.step); };
  if (std::ranges::any_of(nodes_, stays)) return {};
  return tl::unexpected(
      Error(ErrorKind::invalid_argument,
            fmt::format("{}: steps must leave at least one undamaged checkpoint, and the store has no other; to remove "
                        "the store, delete its directory",
                        store_.layout_.root()))
          .about("steps"));
}

Result<PruneReport> Store::Impl::Pruner::run() {
  // The newest checkpoint is never pruned. If only retired ones are left, the newest was lost, and the prune removes
  // nothing more.
  if (removed_ == nullptr && !store_.known_.newest() && store_.known_.has_retired()) return std::move(report_);
  if (!store_.strays_removed_) {
    // Another rank may have committed the newest checkpoint and been killed before it synced the name.
    const std::optional<std::uint64_t> last = store_.known_.newest();
    const bool is_shared = store_.lock_ == nullptr;
    if (last && is_shared && !options_.dry_run) BITSNAP_TRY(store_.directories_.sync_step(*last));
    BITSNAP_ASSIGN(report_.strays, store_.remove_strays(options_.dry_run, !is_shared));
    store_.strays_removed_ = !options_.dry_run && !is_shared;
  }
  BITSNAP_TRY(check_steps());
  BITSNAP_TRY(look());
  BITSNAP_TRY(check_that_one_stays());
  // The base of the next checkpoint is needed, too.
  std::optional<std::uint64_t> newest = store_.known_.newest();
  const auto is_no_base = [this](std::uint64_t step) {
    return is_to_go(step) || std::ranges::lower_bound(nodes_, step, {}, &store::StepNode::step)->is_kept_as_damaged;
  };
  while (newest && is_no_base(*newest)) newest = store_.known_.newest_below(*newest);
  const std::optional<std::uint64_t> next_base = store_.choose_coding(newest).base;
  plan_ = plan(next_base);
  auto recoding = choose_recoding(next_base);
  if (!recoding && (options_.reencode == Reencode::always || !is_damage(recoding.error()))) {
    return tl::unexpected(std::move(recoding).error());
  }
  if (recoding && !recoding->is_empty()) {
    // First, so that what is written again after each save has the room.
    if (is_of_retention_ && !options_.dry_run) {
      report_removed();
      BITSNAP_TRY(carry_out(true));
    }
    BITSNAP_TRY(recode(*recoding));
    plan_ = plan(next_base && recoding->dropped.contains(*next_base) ? std::nullopt : next_base);
  }
  report_plan();
  if (!options_.dry_run) BITSNAP_TRY(carry_out(false));
  return std::move(report_);
}

void Store::Impl::apply_retention(Checkpoint& info, const RunOptions& options) {
  if (!has_retention() || !options_.prunes) return;
  auto pruned = no_throw("pruning", [&] { return prune(options_.retention, {.run = options}, info.step); });
  if (pruned) {
    info.pruned = std::move(*pruned);
    return;
  }
  // Several ranks may commit, but one prunes. If none gets the lock, the next commit prunes.
  if (options_.access == StoreAccess::shared && pruned.error().kind() == ErrorKind::busy) return;
  info.prune_error = std::move(pruned).error().within(fmt::format("step {} is saved, but pruning failed", info.step));
}

Result<store::WriteGuard> Store::Impl::begin_pruning(const PruneOptions& options) {
  store::WriteGuard guard;
  if (options.dry_run) {
    BITSNAP_ASSIGN(guard.turn, turn_.take(options_.interrupted));
    if (lock_ == nullptr) known_.forget();
  } else {
    BITSNAP_ASSIGN(guard, begin_writing(os::LockKind::exclusive));
  }
  BITSNAP_TRY(known_.load_all());
  return guard;
}

Result<PruneReport> Store::Impl::prune(const Retention& retention, const PruneOptions& options,
                                       std::optional<std::uint64_t> just_saved) {
  BITSNAP_TRY(check_retention(retention));
  BITSNAP_ASSIGN(const store::WriteGuard guard, begin_pruning(options));
  return Pruner(*this, retention, options, just_saved).run();
}

// A dry run that keeps all checkpoints tells which pruned ones stay. Without any, the catalog says enough.
Result<RunUsage> Store::Impl::usage() {
  RunUsage usage;
  BITSNAP_ASSIGN(const std::vector<Checkpoint> checkpoints, this->checkpoints());
  usage.checkpoints = checkpoints.size();
  for (const Checkpoint& info : checkpoints) {
    usage.raw_bytes += info.raw_bytes;
    usage.stored_bytes += info.stored_bytes;
  }
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> entries, directories_.list_again());
  const auto is_retired = [](const store::StepEntry& entry) { return entry.state == store::StepState::retired; };
  if (std::ranges::none_of(entries, is_retired)) return usage;
  BITSNAP_ASSIGN(PruneReport report, prune({.keep_every = 1}, {.reencode = Reencode::never, .dry_run = true}));
  usage.needed = std::move(report.needed);
  usage.needed_bytes = report.needed_bytes;
  return usage;
}

Result<PruneReport> Store::Impl::remove(std::vector<std::uint64_t> steps, const PruneOptions& options) {
  std::ranges::sort(steps);
  BITSNAP_ASSIGN(const store::WriteGuard guard, begin_pruning(options));
  return Pruner(*this, steps, options).run();
}

Result<void> Store::Impl::remove_step(std::uint64_t step) {
  Result<void> removed = directories_.remove(step);
  if (removed) {
    known_.erase(step);
  } else {
    lose_sight();
  }
  return removed;
}

Result<void> Store::Impl::retire_step(std::uint64_t step) {
  Result<void> retired = directories_.retire(step);
  if (retired) {
    known_[step].state = store::StepState::retired;
  } else {
    lose_sight();
  }
  return retired;
}

Result<std::vector<std::string>> Store::Impl::remove_strays(bool dry_run, bool is_alone) {
  std::vector<std::string> found;
  std::set<std::uint64_t> removed;
  const std::optional<std::uint64_t> last = known_.newest();
  for (auto& [step, known] : std::views::reverse(known_.all())) {
    if (known.state == store::StepState::uncommitted) {
      // Above the newest checkpoint, other ranks may still be saving.
      if (!is_alone && (!last || step > *last)) continue;
      BITSNAP_ASSIGN(const bool is_spared, is_spared_when_uncommitted(step));
      if (is_spared) continue;
      removed.insert(step);
      BITSNAP_ASSIGN(std::vector<std::string> removable, directories_.removable(step));
      std::ranges::move(removable, std::back_inserter(found));
      if (!dry_run) BITSNAP_TRY(directories_.remove(step));
      continue;
    }
    const Result<store::CommitRecord>& record = known_.record(step);
    BITSNAP_ASSIGN(std::vector<std::string> strays, directories_.strays(step, record ? &*record : nullptr));
    // A writer that was killed while it retired or rewrote this step may not have synced the record. A crash could
    // then bring the previous record back, which refers to strays. So the record is synced before strays are removed.
    const bool may_come_back = known.state == store::StepState::retired || !strays.empty();
    if (!dry_run && may_come_back) BITSNAP_TRY(directories_.sync_step(step));
    if (step == last && record) BITSNAP_TRY(directories_.spare_waiting(step, *record, strays));
    for (const std::string& name : strays) {
      found.push_back(store::RunLayout::relative_file(step, name));
      if (!dry_run) BITSNAP_TRY(directories_.remove_file(step, name));
    }
  }
  if (!dry_run) std::erase_if(known_.all(), [&](const auto& entry) { return removed.contains(entry.first); });
  BITSNAP_ASSIGN(const std::vector<std::string> names, file_system_.list_directory(layout_.root()));
  for (const std::string& name : names) {
    if (!os::AtomicFile::is_temporary_name(name)) continue;
    found.push_back(name);
    if (!dry_run) BITSNAP_TRY(file_system_.remove(os::join_path(layout_.root(), name)));
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace bitsnap
