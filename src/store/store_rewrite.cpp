// Rewriting: writes files of a checkpoint again, under new names, without references to dropped steps.
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "save/base_finder.hpp"
#include "save/snapshot_rewriter.hpp"
#include "store/store_impl.hpp"
#include "store/summed_progress.hpp"

namespace bitsnap {

using Opening = save::ShardedBases::Opening;

// Rewrites several checkpoints, from the oldest on, so that a checkpoint can refer to chunks that the one before it has
// taken over.
class Store::Impl::Rewriter {
 public:
  Rewriter(Impl& store, const std::set<std::uint64_t>& dropped, unsigned threads)
      : store_(store), dropped_(dropped), executor_(exec::make_executor(threads)) {}

  // `whole` are the steps that must not refer to dropped ones, in ascending order.
  Result<void> run(const std::vector<std::uint64_t>& whole, const Progress& progress,
                   std::vector<PruneReport::Rewritten>& rewritten);

 private:
  Result<PruneReport::Rewritten> rewrite(std::uint64_t step, const Progress& progress);
  // Rewrites the files of the record that refer to dropped steps, and updates the record. `progress` covers all files.
  Result<void> rewrite_files(store::CommitRecord& record, const Progress& progress);
  Result<void> rewrite_file(const store::CommitRecord& record, std::uint32_t shard, store::ShardFile& file,
                            const Progress& progress);
  // Makes the rewritten file another name of an earlier shard's file, if both are equal.
  Result<void> link_to_earlier(store::CommitRecord& record, std::uint32_t shard);
  // The shards of the previous checkpoint, where chunks of dropped steps are searched. Returns nullptr if there is
  // none.
  Result<std::unique_ptr<save::ShardedBases>> bases_for(std::uint32_t shard, std::uint32_t shards);

  Impl& store_;
  const std::set<std::uint64_t>& dropped_;
  const std::unique_ptr<exec::Executor> executor_;
  std::optional<std::uint64_t> earlier_;
  // The following belong to the checkpoint that is being rewritten.
  std::shared_ptr<store::CheckpointReader> reader_;
  std::vector<std::string> written_;
  std::vector<std::string> replaced_;
};

Result<std::unique_ptr<save::ShardedBases>> Store::Impl::Rewriter::bases_for(std::uint32_t shard,
                                                                             std::uint32_t shards) {
  if (!earlier_) return nullptr;
  const std::uint64_t step = *earlier_;
  const Result<store::CommitRecord>& found = store_.record_of(step, store_.known_[step]);
  if (!found) return tl::unexpected(found.error());
  const store::CommitRecord& record = *found;
  const auto open = [this, &record](std::uint32_t number, Opening opening) -> Result<std::shared_ptr<const Base>> {
    const store::ShardFile& file = record.shards[number];
    return reader_->open_file(record.step, file, opening == Opening::look);
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
  BITSNAP_ASSIGN(const auto source, reader_->open_file(record.step, file));
  BITSNAP_ASSIGN(const auto bases, bases_for(shard, static_cast<std::uint32_t>(record.shards.size())));
  BITSNAP_ASSIGN(const std::string name, store_.free_file_name(record.step, store::rewritten_file_name(file.file)));
  const std::string path = store_.layout_.step_file(record.step, name);
  BITSNAP_ASSIGN(std::unique_ptr<os::WritableFile> out, store_.file_system_.create(path));
  written_.push_back(name);
  // Codes as before. Settings that the file does not contain come from the store.
  SaveOptions save{.settings = merge_settings({.policy = policy_from_name(record.policy),
                                               .objective = objective_from_name(source->objective())},
                                              store_.settings_),
                   .progress = progress};
  auto written = save::rewrite_snapshot(*source, {.dropped = dropped_ids}, bases.get(), save, *out, *executor_);
  if (!written) return tl::unexpected(name_file(std::move(written).error(), path));
  BITSNAP_TRY(out->sync());
  BITSNAP_TRY(out->close());

  std::vector<store::StepReference> references;
  for (const save::Reference& reference : written->references) {
    const auto before = std::ranges::find(file.references, reference.id, &store::StepReference::id);
    if (before != file.references.end() && !dropped_.contains(before->step)) {
      references.push_back(*before);
      references.back().standalone = before->standalone && reference.standalone;
      continue;
    }
    BITSNAP_ASSIGN(references.emplace_back(), reader_->reference_to(reference));
  }
  replaced_.push_back(file.file);
  file.file = name;
  file.bytes = written->summary.stored_bytes;
  file.depth = written->depth;
  file.references = std::move(references);
  // Keeps the new file only if it can be opened with everything that it refers to.
  store::CheckpointReader fresh(store_.file_system_, store_.layout_, store_.options_.limits);
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
    BITSNAP_ASSIGN(std::string name, store_.free_file_name(record.step, store::rewritten_file_name(file.file)));
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
  for (const store::ShardFile& file : record.shards) total += store::refers_to(file, dropped_) ? file.raw_bytes : 0;
  store::SummedProgress summed(progress, total);
  for (std::uint32_t shard = 0; shard < record.shards.size(); ++shard) {
    store::ShardFile& file = record.shards[shard];
    if (!store::refers_to(file, dropped_)) continue;
    BITSNAP_TRY(rewrite_file(record, shard, file, summed.next(file.raw_bytes)));
    BITSNAP_TRY(link_to_earlier(record, shard));
  }
  store::settle_links(record);
  // A checkpoint whose base was dropped is a keyframe now. Any other is as many links from its keyframe as before.
  if (record.base && dropped_.contains(*record.base)) {
    record.base.reset();
    record.links = 0;
  }
  return store_.directories_.sync_step(record.step);
}

Result<PruneReport::Rewritten> Store::Impl::Rewriter::rewrite(std::uint64_t step, const Progress& progress) {
  Known& known = store_.known_[step];
  const Result<store::CommitRecord>& old = store_.record_of(step, known);
  if (!old) return tl::unexpected(old.error());
  store::CommitRecord record = *old;
  reader_ = std::make_shared<store::CheckpointReader>(store_.file_system_, store_.layout_, store_.options_.limits);
  written_.clear();
  replaced_.clear();
  if (Result<void> rewritten = rewrite_files(record, progress); !rewritten) {
    // No record names these files. A later prune removes those that cannot be removed now.
    for (const std::string& name : written_) static_cast<void>(store_.directories_.remove_file(step, name));
    return tl::unexpected(std::move(rewritten).error());
  }
  const auto replaced = store::replace_commit_record(store_.file_system_, store_.layout_, record,
                                                     known.state == store::StepState::retired);
  if (!replaced) {
    // Nobody knows which of the two records is there, and which would survive a crash. So the files of both stay.
    store_.lose_sight();
    return tl::unexpected(replaced.error());
  }
  store_.directories_.note_sync(*replaced);
  PruneReport::Rewritten report{step, store::checkpoint_info(*old, known.record_bytes).stored_bytes, 0};
  known.set_record(std::move(record));
  report.bytes_after = store::checkpoint_info(**known.record, known.record_bytes).stored_bytes;
  for (const std::string& name : replaced_) BITSNAP_TRY(store_.directories_.remove_file(step, name));
  return report;
}

Result<void> Store::Impl::Rewriter::run(const std::vector<std::uint64_t>& whole, const Progress& progress,
                                        std::vector<PruneReport::Rewritten>& rewritten) {
  std::uint64_t total = 0;
  for (const std::uint64_t step : whole) {
    const Result<store::CommitRecord>& record = store_.record_of(step, store_.known_[step]);
    if (record && store::refers_to(*record, dropped_)) total += store::raw_bytes(*record);
  }
  store::SummedProgress summed(progress, total);
  for (const std::uint64_t step : whole) {
    if (dropped_.contains(step)) continue;
    const Result<store::CommitRecord>& record = store_.record_of(step, store_.known_[step]);  // until it is replaced
    if (!record) continue;
    if (store::refers_to(*record, dropped_)) {
      BITSNAP_ASSIGN(PruneReport::Rewritten report, rewrite(step, summed.next(store::raw_bytes(*record))));
      rewritten.push_back(report);
    }
    earlier_ = step;
  }
  return {};
}

Result<void> Store::Impl::rewrite_all(const std::set<std::uint64_t>& dropped, const std::vector<std::uint64_t>& whole,
                                      const RunOptions& options, std::vector<PruneReport::Rewritten>& rewritten) {
  return Rewriter(*this, dropped, options.threads).run(whole, options.progress, rewritten);
}

}  // namespace bitsnap
