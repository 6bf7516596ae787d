// Rewriting: writes files of a checkpoint again, under new names, without references to dropped steps, or against a
// later checkpoint.
#include <algorithm>
#include <map>
#include <memory>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "save/base_finder.hpp"
#include "save/snapshot_rewriter.hpp"
#include "store/coding_plan.hpp"
#include "store/store_impl.hpp"
#include "store/summed_progress.hpp"

namespace bitsnap {

using Opening = save::ShardedBases::Opening;

// Rewrites several checkpoints: from the oldest on, so that a checkpoint can refer to chunks that the one before it has
// taken over; or, if some are coded against later ones, from the newest on, because a later one may need the earlier
// ones until it is rewritten.
class Store::Impl::Rewriter {
 public:
  Rewriter(Impl& store, const std::set<std::uint64_t>& dropped, std::optional<std::uint64_t> just_saved,
           unsigned threads)
      : store_(store),
        dropped_(dropped),
        just_saved_(just_saved),
        threads_(threads),
        executor_(exec::make_executor(threads)) {}

  // `whole` are the steps that must not refer to dropped ones, in ascending order. `onto`: for some of them, the later
  // step that each is coded against, which does not depend on it when it is rewritten itself.
  Result<void> run(const std::vector<std::uint64_t>& whole, const std::map<std::uint64_t, std::uint64_t>& onto,
                   const Progress& progress, std::vector<PruneReport::Rewritten>& rewritten);

 private:
  Result<PruneReport::Rewritten> rewrite(std::uint64_t step, const Progress& progress);
  // Removes `standalone` from the references to the step, whose chunks depend on others from now on.
  Result<void> expect_dependence(std::uint64_t step);
  // Writes a record over the one that is there, durably.
  Result<void> replace_record(store::KnownStep& known, store::CommitRecord record);
  [[nodiscard]] bool is_rewritten(const store::ShardFile& file) const {
    return later_.has_value() || store::refers_to(file, dropped_);
  }
  // Rewrites the files of the record that refer to dropped steps, and updates the record. `progress` covers all files.
  Result<void> rewrite_files(store::CommitRecord& record, const Progress& progress);
  Result<void> rewrite_file(const store::CommitRecord& record, std::uint32_t shard, store::ShardFile& file,
                            const Progress& progress);
  // Makes the rewritten file another name of an earlier shard's file, if both are equal.
  Result<void> link_to_earlier(store::CommitRecord& record, std::uint32_t shard);
  // The shards of the later checkpoint, or of the previous one, where chunks of dropped steps are searched. Returns
  // nullptr if there is none.
  Result<std::unique_ptr<save::ShardedBases>> bases_for(std::uint32_t shard, std::uint32_t shards);

  Impl& store_;
  const std::set<std::uint64_t>& dropped_;
  const std::optional<std::uint64_t> just_saved_;
  const unsigned threads_;
  const std::unique_ptr<exec::Executor> executor_;
  std::optional<std::uint64_t> earlier_;
  std::optional<std::uint64_t> later_;
  // The following belong to the checkpoint that is being rewritten.
  std::shared_ptr<store::CheckpointReader> reader_;
  std::vector<std::string> written_;
  std::vector<std::string> replaced_;
};

Result<std::unique_ptr<save::ShardedBases>> Store::Impl::Rewriter::bases_for(std::uint32_t shard,
                                                                             std::uint32_t shards) {
  if (!later_ && !earlier_) return nullptr;
  const std::uint64_t step = later_ ? *later_ : *earlier_;
  const Result<store::CommitRecord>& found = store_.known_.record(step);
  if (!found) return tl::unexpected(found.error());
  const store::CommitRecord& record = *found;
  const auto open = [this, &record, shard](std::uint32_t number,
                                           Opening opening) -> Result<std::shared_ptr<const Base>> {
    BITSNAP_ASSIGN(auto base, reader_->open_file(record.step, record.shards[number], opening == Opening::look));
    if (number == shard) BITSNAP_TRY(store_.read_base_from_memory(*base, threads_, record.step == just_saved_));
    return base;
  };
  return std::make_unique<save::ShardedBases>(static_cast<std::uint32_t>(record.shards.size()),
                                              save::ShardedBases::Place{shard, shards}, open);
}

Result<void> Store::Impl::Rewriter::rewrite_file(const store::CommitRecord& record, std::uint32_t shard,
                                                 store::ShardFile& file, const Progress& progress) {
  std::vector<SnapshotId> dropped_ids;
  for (const store::StepReference& reference : file.references) {
    if (dropped_.contains(reference.step)) dropped_ids.push_back(reference.id);
  }
  std::optional<std::uint32_t> later_depth;
  if (later_) {
    // The later checkpoint may refer to chunks of these, and of other shards of this one.
    later_depth = std::max(*store_.settings_.max_depth, std::uint32_t{1});
    for (const std::uint64_t step : dropped_) {
      const auto known = store_.known_.all().find(step);
      if (known == store_.known_.all().end() || known->second.state == store::StepState::uncommitted) continue;
      const Result<store::CommitRecord>& gone = store_.known_.record(step);
      if (!gone) continue;
      for (const store::ShardFile& shard_file : gone->shards) dropped_ids.push_back(shard_file.id);
    }
    for (const store::ShardFile& shard_file : record.shards) dropped_ids.push_back(shard_file.id);
  }
  BITSNAP_ASSIGN(const auto source, reader_->open_file(record.step, file));
  store_.cache_->attach_decoded(*source);
  BITSNAP_ASSIGN(const auto bases, bases_for(shard, static_cast<std::uint32_t>(record.shards.size())));
  BITSNAP_ASSIGN(const std::string name,
                 store_.directories_.free_file_name(record.step, store::rewritten_file_name(file.file)));
  const std::string path = store_.layout_.step_file(record.step, name);
  BITSNAP_ASSIGN(std::unique_ptr<os::WritableFile> out, store_.file_system_.create(path));
  written_.push_back(name);
  // Codes as before. Settings that the file does not contain come from the store.
  SaveOptions save{.settings = merge_settings({.policy = policy_from_name(record.policy),
                                               .objective = objective_from_name(source->objective())},
                                              store_.settings_),
                   .progress = progress};
  auto written = save::rewrite_snapshot(*source, {.dropped = dropped_ids, .later_depth = later_depth}, bases.get(),
                                        save, *out, *executor_);
  if (!written) return tl::unexpected(name_file(std::move(written).error(), path));
  BITSNAP_TRY(out->sync());
  BITSNAP_TRY(out->close());

  std::vector<store::StepReference> references;
  for (const save::Reference& reference : written->references) {
    const auto before = std::ranges::find(file.references, reference.id, &store::StepReference::id);
    if (!later_ && before != file.references.end() && !dropped_.contains(before->step)) {
      references.push_back(*before);
      references.back().standalone = before->standalone && reference.standalone;
      continue;
    }
    BITSNAP_ASSIGN(references.emplace_back(), reader_->reference_to(reference));
  }
  // Some chunks cannot be coded again as they were.
  if (later_ && written->summary.stored_bytes >= file.bytes && !store::refers_to(file, dropped_)) {
    written_.pop_back();
    return store_.directories_.remove_file(record.step, name);
  }
  replaced_.push_back(file.file);
  file.file = name;
  file.bytes = written->summary.stored_bytes;
  file.depth = written->depth;
  file.references = std::move(references);
  // Keeps the new file only if it can be opened with everything that it refers to.
  store::CheckpointReader fresh(store_.file_system_, store_.layout_, store_.options_.limits);
  fresh.assume(record);  // which has the new file
  BITSNAP_TRY(fresh.open_file(record.step, file));
  return {};
}

Result<void> Store::Impl::Rewriter::link_to_earlier(store::CommitRecord& record, std::uint32_t shard) {
  store::ShardFile& file = record.shards[shard];
  file.is_link = false;
  for (std::uint32_t earlier = 0; earlier < shard; ++earlier) {
    const store::ShardFile& other = record.shards[earlier];
    if (other.id != file.id || other.bytes != file.bytes) continue;
    BITSNAP_ASSIGN(const auto opened, store_.file_system_.open(store_.layout_.step_file(record.step, file.file)));
    BITSNAP_ASSIGN(std::string name,
                   store_.directories_.free_file_name(record.step, store::rewritten_file_name(file.file)));
    written_.push_back(name);
    file.is_link = store_.link_if_equal(record.step, *opened, other.file, name);
    if (!file.is_link) continue;
    replaced_.push_back(std::exchange(file.file, std::move(name)));
    return {};
  }
  return {};
}

Result<void> Store::Impl::Rewriter::rewrite_files(store::CommitRecord& record, const Progress& progress) {
  std::uint64_t total = 0;
  for (const store::ShardFile& file : record.shards) total += is_rewritten(file) ? file.raw_bytes : 0;
  store::SummedProgress summed(progress, total);
  for (std::uint32_t shard = 0; shard < record.shards.size(); ++shard) {
    store::ShardFile& file = record.shards[shard];
    if (!is_rewritten(file)) continue;
    BITSNAP_TRY(rewrite_file(record, shard, file, summed.next(file.raw_bytes)));
    BITSNAP_TRY(link_to_earlier(record, shard));
  }
  store::settle_links(record);
  // A checkpoint whose base was dropped is a keyframe now. Any other is as many links from its keyframe as before.
  if (later_) {
    const Result<store::CommitRecord>& later = store_.known_.record(*later_);
    const bool is_used = store::refers_to(record, {*later_});
    record.base = is_used ? later_ : std::nullopt;
    record.links = is_used ? (later ? later->links : 0) + 1 : 0;
    record.coded_share = store::share_of(store::stored_bytes(record), store::raw_bytes(record));
    record.coded_age = 0;
  } else if (record.base && dropped_.contains(*record.base)) {
    record.base.reset();
    record.links = 0;
  }
  return store_.directories_.sync_step(record.step);
}

Result<PruneReport::Rewritten> Store::Impl::Rewriter::rewrite(std::uint64_t step, const Progress& progress) {
  store::KnownStep& known = store_.known_[step];
  const Result<store::CommitRecord>& old = store_.known_.record(step);
  if (!old) return tl::unexpected(old.error());
  store::CommitRecord record = *old;
  reader_ = std::make_shared<store::CheckpointReader>(store_.file_system_, store_.layout_, store_.options_.limits);
  written_.clear();
  replaced_.clear();
  if (later_) BITSNAP_TRY(expect_dependence(step));
  if (Result<void> rewritten = rewrite_files(record, progress); !rewritten) {
    // No record names these files. A later prune removes those that cannot be removed now.
    for (const std::string& name : written_) static_cast<void>(store_.directories_.remove_file(step, name));
    return tl::unexpected(std::move(rewritten).error());
  }
  PruneReport::Rewritten report{step, store::checkpoint_info(*old, known.record_bytes).stored_bytes, 0};
  BITSNAP_TRY(replace_record(known, std::move(record)));
  report.bytes_after = store::checkpoint_info(**known.record, known.record_bytes).stored_bytes;
  for (const std::string& name : replaced_) BITSNAP_TRY(store_.directories_.remove_file(step, name));
  return report;
}

// A reader opens what it refers to alone if the record says `standalone`. Whatever a record says instead is correct
// before the step is rewritten and after it.
Result<void> Store::Impl::Rewriter::expect_dependence(std::uint64_t step) {
  for (auto& [other, known] : store_.known_.all()) {
    if (other == step || known.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& found = store_.known_.record(other);
    if (!found) continue;
    store::CommitRecord record = *found;
    bool is_changed = false;
    for (store::ShardFile& file : record.shards) {
      for (store::StepReference& reference : file.references) {
        if (reference.step != step || !reference.standalone) continue;
        reference.standalone = false;
        is_changed = true;
      }
    }
    if (is_changed) BITSNAP_TRY(replace_record(known, std::move(record)));
  }
  return {};
}

Result<void> Store::Impl::Rewriter::replace_record(store::KnownStep& known, store::CommitRecord record) {
  const auto replaced = store::replace_commit_record(store_.file_system_, store_.layout_, record,
                                                     known.state == store::StepState::retired);
  if (!replaced) {
    // Nobody knows which of the two records is there, and which would survive a crash. So the files of both stay.
    store_.lose_sight();
    return tl::unexpected(replaced.error());
  }
  store_.directories_.note_sync(*replaced);
  known.set_record(std::move(record));
  return {};
}

Result<void> Store::Impl::Rewriter::run(const std::vector<std::uint64_t>& whole,
                                        const std::map<std::uint64_t, std::uint64_t>& onto, const Progress& progress,
                                        std::vector<PruneReport::Rewritten>& rewritten) {
  std::uint64_t total = 0;
  for (const std::uint64_t step : whole) {
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    const bool is_rewritten = onto.contains(step) || (record && store::refers_to(*record, dropped_));
    if (is_rewritten) total += store::raw_bytes(*record);
  }
  store::SummedProgress summed(progress, total);
  const auto has_later_base = [&](std::uint64_t step) {
    const Result<store::CommitRecord>& record = store_.known_.record(step);
    return record && record->base > step;
  };
  const bool is_ascending = onto.empty() && std::ranges::none_of(whole, has_later_base);
  std::optional<Error> damage;
  const auto rewrite_one = [&](std::uint64_t step) -> Result<void> {
    const Result<store::CommitRecord>& record = store_.known_.record(step);  // until it is replaced
    if (dropped_.contains(step) || !record) return {};
    const auto later = onto.find(step);
    later_ = later == onto.end() ? std::nullopt : std::optional(later->second);
    if (later_ || store::refers_to(*record, dropped_)) {
      Result<PruneReport::Rewritten> report = rewrite(step, summed.next(store::raw_bytes(*record)));
      // Damage of one checkpoint keeps no other from being rewritten against a later one.
      if (!report && (!later_ || !store::is_damage(report.error()))) return tl::unexpected(std::move(report).error());
      if (report) {
        rewritten.push_back(*report);
      } else if (!damage) {
        damage = std::move(report).error();
      }
    }
    if (is_ascending) earlier_ = step;
    return {};
  };
  if (is_ascending) {
    for (const std::uint64_t step : whole) BITSNAP_TRY(rewrite_one(step));
    return {};
  }
  for (const std::uint64_t step : std::views::reverse(whole)) BITSNAP_TRY(rewrite_one(step));
  return damage ? tl::unexpected(*std::move(damage)) : Result<void>();
}

Result<void> Store::Impl::check_not_stuck(const std::set<std::uint64_t>& stuck,
                                          const std::set<std::uint64_t>& dropped) {
  if (stuck.empty()) return {};
  std::vector<std::uint64_t> damaged;
  for (auto& [step, known] : known_.all()) {
    if (dropped.contains(step) || known.state != store::StepState::committed) continue;
    const Result<store::CommitRecord>& record = known_.record(step);
    if (!record || record->damaged_tensors == 0) continue;
    const std::set<std::uint64_t> needed = known_.needed_by(step);
    if (std::ranges::any_of(stuck, [&](std::uint64_t other) { return needed.contains(other); }))
      damaged.push_back(step);
  }
  if (damaged.empty()) return {};
  const bool is_one = damaged.size() == 1;
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: step{} {}, kept as damaged, would lose more, because what can be read of {} needs steps "
                          "above; remove {} first",
                          layout_.root(), is_one ? "" : "s", fmt::join(damaged, " and "), is_one ? "it" : "them",
                          is_one ? "it" : "them"));
}

Result<void> Store::Impl::detach(const std::set<std::uint64_t>& dropped, const RunOptions& options) {
  std::vector<std::uint64_t> referring;
  std::set<std::uint64_t> stuck;  // which refer to a dropped step, and cannot be written again
  for (auto& [step, known] : known_.all()) {
    if (dropped.contains(step) || known.state == store::StepState::uncommitted) continue;
    const Result<store::CommitRecord>& record = known_.record(step);
    if (!record && !store::is_damage(record.error())) {
      Error error = record.error();
      known.record.reset();
      return tl::unexpected(std::move(error));
    }
    if (!record || !store::refers_to(*record, dropped)) continue;
    const bool is_whole = record->damaged_tensors == 0 &&
                          std::ranges::all_of(record->shards, [&, at = step](const store::ShardFile& file) {
                            return reader_->check_references(at, file).has_value();
                          });
    const bool is_to_be_whole = known.state == store::StepState::committed && record->damaged_tensors == 0;
    if (is_whole || is_to_be_whole) {
      referring.push_back(step);
    } else {
      stuck.insert(step);
    }
  }
  BITSNAP_TRY(check_not_stuck(stuck, dropped));
  std::vector<PruneReport::Rewritten> rewritten;
  return referring.empty() ? Result<void>() : rewrite_all(dropped, referring, {}, options, rewritten);
}

Result<void> Store::Impl::rewrite_all(const std::set<std::uint64_t>& dropped, const std::vector<std::uint64_t>& whole,
                                      const std::map<std::uint64_t, std::uint64_t>& onto, const RunOptions& options,
                                      std::vector<PruneReport::Rewritten>& rewritten,
                                      std::optional<std::uint64_t> just_saved) {
  return Rewriter(*this, dropped, just_saved, options.threads).run(whole, onto, options.progress, rewritten);
}

}  // namespace bitsnap
