// Reading: lists checkpoints and opens them.
#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "store/catalog.hpp"
#include "store/missing_store.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

// `record_bytes` is the size of the record's file.
Checkpoint info_or_damage(std::uint64_t step, Result<store::CommitRecord> record, std::uint64_t record_bytes) {
  if (record) return store::checkpoint_info(*record, record_bytes);
  Checkpoint damaged;
  damaged.step = step;
  damaged.damage = std::move(record).error();
  return damaged;
}

constexpr int kListAgain = 3;

}  // namespace

Result<std::vector<Checkpoint>> Store::Impl::checkpoints() const {
  const auto named = labels_.all();
  BITSNAP_ASSIGN(const std::vector<store::StepEntry> entries, directories_.list_again());
  const store::Catalog catalog = store::Catalog::read(file_system_, layout_.catalog());
  std::vector<Checkpoint> checkpoints;
  checkpoints.reserve(entries.size());
  for (const store::StepEntry& entry : entries) {
    if (entry.state != store::StepState::committed) continue;
    if (const Checkpoint* const known = catalog.find(entry)) {
      checkpoints.push_back(*known);
      continue;
    }
    auto record = store::read_commit_record(file_system_, layout_, entry.step);
    if (!record && record.error().kind() == ErrorKind::not_found) continue;  // pruned meanwhile
    checkpoints.push_back(info_or_damage(entry.step, std::move(record), entry.record.size_bytes));
  }
  store::Labels::note(checkpoints, named);
  return checkpoints;
}

Result<Checkpoint> Store::Impl::checkpoint(std::uint64_t step) const {
  BITSNAP_ASSIGN(const os::FileInfo file, file_system_.stat(layout_.commit(step)));
  if (!file.exists) {
    was_missed_ = true;
    return tl::unexpected(directories_.not_found(step));
  }
  auto record = store::read_commit_record(file_system_, layout_, step);
  if (!record && record.error().kind() == ErrorKind::not_found) return tl::unexpected(directories_.not_found(step));
  std::vector<PruneReport::Needed> needed = record ? pruned_below(*record) : std::vector<PruneReport::Needed>();
  std::vector<Checkpoint> checkpoint = {info_or_damage(step, std::move(record), file.size_bytes)};
  store::Labels::note(checkpoint, labels_.all());
  checkpoint.front().needed = std::move(needed);
  return std::move(checkpoint.front());
}

// Passes over those that cannot be read: verify() tells of damage.
std::vector<PruneReport::Needed> Store::Impl::pruned_below(const store::CommitRecord& record) const {
  std::vector<PruneReport::Needed> found;
  std::set<std::uint64_t> seen = {record.step};
  std::vector<store::CommitRecord> pending = {record};
  while (!pending.empty()) {
    const store::CommitRecord from = std::move(pending.back());
    pending.pop_back();
    for (const store::ShardFile& file : from.shards) {
      for (const store::StepReference& reference : file.references) {
        if (!seen.insert(reference.step).second) continue;
        auto below = store::read_commit_record(file_system_, layout_, reference.step, true);
        if (below) {
          const std::uint64_t record_bytes = store::serialize_commit_record(*below).size();
          found.push_back({reference.step, record_bytes + store::stored_bytes(*below), record.step, true});
        } else if (below = store::read_commit_record(file_system_, layout_, reference.step); !below) {
          continue;
        }
        if (!reference.standalone) pending.push_back(*std::move(below));
      }
    }
  }
  std::ranges::sort(found, {}, &PruneReport::Needed::step);
  return found;
}

Result<std::optional<std::uint64_t>> Store::Impl::newest_whole() const {
  const auto is_whole = [this](const store::StepEntry& entry) {
    if (entry.state != store::StepState::committed) return false;
    const auto record = store::read_commit_record(file_system_, layout_, entry.step);
    return !record || record->damaged_tensors == 0;  // of a lost record, the reader tells
  };
  for (int again = 0;; ++again) {
    BITSNAP_ASSIGN(const store::NewestSteps newest, directories_.list_newest());
    if (newest.entries.empty() || newest.entries.front().state != store::StepState::committed) {
      if (newest.all_steps > 0 && again < kListAgain) continue;  // as in StepDirectories::list_again()
      return std::optional<std::uint64_t>();
    }
    if (is_whole(newest.entries.front())) return std::optional(newest.entries.front().step);
    BITSNAP_ASSIGN(const std::vector<store::StepEntry> entries, directories_.list_again());
    const auto found = std::ranges::find_if(entries.rbegin(), entries.rend(), is_whole);
    return found == entries.rend() ? std::nullopt : std::optional(found->step);
  }
}

Result<std::shared_ptr<const Snapshot>> Store::Impl::snapshot(std::optional<std::uint64_t> step, std::uint32_t shard,
                                                              bool partial) const {
  const bool wants_newest = !step;
  for (int again = 0;; ++again) {
    if (wants_newest) {
      BITSNAP_ASSIGN(step, newest_whole());
      if (!step) {
        was_missed_ = true;
        BITSNAP_ASSIGN(const std::vector<std::uint64_t> damaged, directories_.steps());
        return fail(
            ErrorKind::not_found,
            damaged.empty()
                ? fmt::format(
                      "{}: the store has no checkpoints{}{}", layout_.root(),
                      is_new_ ? ", because no run was there and opening it began one, which is removed again unless "
                                "something is saved to it; create=False or read_only=True begins none"
                              : "",
                      store::similar_stores(all_files_, layout_.root()))
                : fmt::format("{}: every checkpoint of the store is damaged; the newest is step {}", layout_.root(),
                              damaged.back()));
      }
    }
    auto opened = reader_->open(*step, shard, partial);
    if (opened || opened.error().kind() != ErrorKind::not_found) return opened;
    BITSNAP_ASSIGN(const os::FileInfo file, file_system_.stat(layout_.commit(*step)));
    if (!file.exists && !wants_newest) return tl::unexpected(directories_.not_found(*step));
    if (file.exists && again >= kListAgain) return opened;  // the shard is missing
    // The checkpoint was removed while it was opened. Now it is saved again, or the one before it is the newest.
  }
}

Result<std::vector<CheckpointFile>> Store::Impl::files(std::uint64_t step) const {
  const auto opened = reader_->open_files(step);
  if (opened) return *opened == nullptr ? std::vector<CheckpointFile>() : store::read_files(**opened);
  const auto record = file_system_.stat(layout_.commit(step));
  const bool is_gone = record && !record->exists && opened.error().kind() == ErrorKind::not_found;
  return tl::unexpected(is_gone ? directories_.not_found(step) : opened.error());
}

}  // namespace bitsnap
