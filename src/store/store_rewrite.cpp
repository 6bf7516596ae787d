// Rewriting: files of a checkpoint are written again, under new names, without what is to go.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "record/base_finder.hpp"
#include "record/snapshot_rewriter.hpp"
#include "store/store_impl.hpp"
#include "store/summed_progress.hpp"

namespace bitsnap {

using Opening = record::ShardedBases::Opening;

Result<PruneReport::Rewritten> Store::Impl::rewrite_without(std::uint64_t step, const std::set<std::uint64_t>& dropped,
                                                            std::optional<std::uint64_t> earlier,
                                                            const RunOptions& options) {
  Known& known = known_[step];
  const Result<store::CommitRecord>& old = record_of(step, known);
  if (!old) return tl::unexpected(old.error());
  store::CommitRecord record = *old;
  std::vector<std::string> replaced;
  const auto executor = exec::make_executor(options.threads);
  const auto reader = std::make_shared<store::CheckpointReader>(file_system_, layout_, options_.limits);
  const auto is_dropped = [&](const store::StepReference& r) { return dropped.contains(r.step); };

  for (std::uint32_t shard = 0; shard < record.shards.size(); ++shard) {
    store::ShardFile& file = record.shards[shard];
    if (std::ranges::none_of(file.references, is_dropped)) continue;
    std::vector<SnapshotId> dropped_ids;
    for (const store::StepReference& reference : file.references) {
      if (is_dropped(reference)) dropped_ids.push_back(reference.id);
    }
    BITSNAP_ASSIGN(const auto source, reader->open_file(step, file));
    std::optional<record::ShardedBases> bases;
    if (earlier) {
      const Result<store::CommitRecord>& found = record_of(*earlier, known_[*earlier]);
      if (!found) return tl::unexpected(found.error());
      const record::ShardedBases::Place own{shard, static_cast<std::uint32_t>(record.shards.size())};
      bases.emplace(static_cast<std::uint32_t>(found->shards.size()), own,
                    [&](std::uint32_t number, Opening opening) -> Result<std::shared_ptr<const Base>> {
                      const store::ShardFile& there = found->shards[number];
                      BITSNAP_ASSIGN(auto opened, opening == Opening::look ? reader->open_alone(*earlier, there)
                                                                           : reader->open_file(*earlier, there));
                      return opened;
                    });
    }

    std::string name = file.file;
    for (bool is_free = false; !is_free;) {
      name = store::rewritten_file_name(name);
      BITSNAP_ASSIGN(const os::FileInfo there, file_system_.stat(layout_.step_file(step, name)));
      is_free = !there.exists;
    }
    const std::string path = layout_.step_file(step, name);
    BITSNAP_ASSIGN(std::unique_ptr<os::WritableFile> out, file_system_.create(path));
    const auto write = [&]() -> Result<record::RecordSummary> {
      BITSNAP_ASSIGN(record::RecordSummary written,
                     record::rewrite_snapshot(*source, dropped_ids, bases ? &*bases : nullptr,
                                              policy_from_name(record.policy).value_or(policy()), *out, *executor,
                                              options.progress));
      BITSNAP_TRY(out->sync());
      BITSNAP_TRY(out->close());
      return written;
    };
    auto written = write();
    if (!written) {
      static_cast<void>(directories_.remove_file(step, name));  // not named by any record; a later prune removes it
      return tl::unexpected(name_file(std::move(written).error(), path));
    }
    replaced.push_back(file.file);
    std::vector<store::StepReference> references;
    for (const record::Reference& reference : written->references) {
      const auto before = std::ranges::find(file.references, reference.id, &store::StepReference::id);
      if (before != file.references.end() && !is_dropped(*before)) {
        references.push_back(*before);
        references.back().standalone = before->standalone && reference.standalone;
        continue;
      }
      BITSNAP_ASSIGN(const store::CheckpointReader::Place place, reader->place_of(reference.name, reference.id));
      references.push_back({reference.id, place.step, place.shard, reference.standalone});
    }
    file.file = name;
    file.bytes = written->summary.stored_bytes;
    file.depth = written->depth;
    file.references = std::move(references);
    // With what it refers to now the new file can be read, or the old one stays.
    store::CheckpointReader fresh(file_system_, layout_, options_.limits);
    if (const auto opened = fresh.open_file(step, file); !opened) {
      static_cast<void>(directories_.remove_file(step, name));
      return tl::unexpected(opened.error());
    }
  }

  // What was coded against a dropped one stands by itself now. Otherwise it is as many links from its keyframe as
  // before.
  if (record.base && dropped.contains(*record.base)) {
    record.base.reset();
    record.links = 0;
  }
  BITSNAP_TRY(directories_.sync_step(step));
  auto replaced_record =
      store::replace_commit_record(file_system_, layout_, record, known.state == store::StepState::retired);
  if (!replaced_record) {
    // Which of the two records is there, and which outlives a crash, is not known: both kinds of files stay.
    lose_sight();
    return tl::unexpected(std::move(replaced_record).error());
  }
  directories_.note_sync(*replaced_record);
  PruneReport::Rewritten report{step, known.record_bytes, store::serialize_commit_record(record).size()};
  for (const store::ShardFile& file : old->shards) report.bytes_before += file.bytes;
  for (const store::ShardFile& file : record.shards) report.bytes_after += file.bytes;
  known.record_bytes = store::serialize_commit_record(record).size();
  known.record = std::make_shared<const Result<store::CommitRecord>>(std::move(record));
  for (const std::string& name : replaced) BITSNAP_TRY(directories_.remove_file(step, name));
  return report;
}

// The oldest first, so that what one of them takes over, the next can refer to.
Result<void> Store::Impl::rewrite_all(const std::set<std::uint64_t>& dropped, const std::vector<std::uint64_t>& whole,
                                      const RunOptions& options, std::vector<PruneReport::Rewritten>& rewritten) {
  const auto refers = [&](const store::CommitRecord& record) {
    return std::ranges::any_of(record.shards, [&](const store::ShardFile& file) {
      return std::ranges::any_of(file.references, [&](const auto& r) { return dropped.contains(r.step); });
    });
  };
  std::uint64_t total = 0;
  for (const std::uint64_t step : whole) {
    const Result<store::CommitRecord>& record = record_of(step, known_[step]);
    if (!record || !refers(*record)) continue;
    for (const store::ShardFile& file : record->shards) total += file.raw_bytes;
  }
  store::SummedProgress progress(options.progress, total);
  forget_bases();  // what they refer to will stand elsewhere
  std::optional<std::uint64_t> earlier;
  for (const std::uint64_t step : whole) {
    if (dropped.contains(step)) continue;
    const Result<store::CommitRecord>& record = record_of(step, known_[step]);  // until it is replaced
    if (!record) continue;
    if (refers(*record)) {
      std::uint64_t bytes = 0;
      for (const store::ShardFile& file : record->shards) bytes += file.raw_bytes;
      BITSNAP_ASSIGN(PruneReport::Rewritten report,
                     rewrite_without(step, dropped, earlier, {options.threads, progress.next(bytes)}));
      rewritten.push_back(report);
    }
    earlier = step;
  }
  return {};
}

}  // namespace bitsnap
