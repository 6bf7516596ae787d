// Checkpoints that several ranks write: each its shard, and whoever comes last the commit record.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "container/file_reader.hpp"
#include "os/clock.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

Result<void> check_place(std::uint32_t shard, std::uint32_t shards, const std::string& attempt) {
  if (shards == 0 || shards > store::kMaxShards) {
    return fail(ErrorKind::invalid_argument, fmt::format("{} shards: expected 1 to {}", shards, store::kMaxShards));
  }
  if (shard >= shards) {
    return fail(ErrorKind::invalid_argument, fmt::format("shard {} of {}: they count from 0", shard, shards));
  }
  if (!store::is_attempt_name(attempt)) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("attempt '{}': expected 1 to {} of the characters a-z, 0-9 and '-'", attempt,
                            store::kMaxAttemptBytes));
  }
  return {};
}

}  // namespace

Result<SaveSummary> Store::Impl::save_shard(std::uint64_t step, const ShardPlace& place, const State& state,
                                            const RunOptions& options) {
  BITSNAP_TRY(check_place(place.shard, place.shards, place.attempt));
  BITSNAP_ASSIGN(const WriteGuard guard, begin_writing(os::LockKind::shared));
  BITSNAP_TRY(refresh_newest());
  BITSNAP_TRY(check_new_step(step));

  std::string name = store::shard_file_name(place.shard, place.shards, place.attempt);
  const std::string record_name = store::shard_record_name(place.shard, place.shards, place.attempt);
  Coding coding = choose_coding();
  // Another process may have committed the base and been killed before it synced the name.
  if (coding.finder) BITSNAP_TRY(directories_.sync_step(*coding.finder));
  BITSNAP_TRY(directories_.create(step));
  // What this rank wrote of the attempt before may be committed by another at any moment: it is never touched, only
  // left unnamed.
  for (;;) {
    BITSNAP_ASSIGN(const os::FileInfo info, file_system_.stat(layout_.step_file(step, name)));
    if (!info.exists) break;
    name = store::rewritten_file_name(name);
  }

  SaveSummary summary;
  const auto write = [&]() -> Result<void> {
    store::ShardRecord record;
    BITSNAP_ASSIGN(record.file, write_file_somehow(step, name, {place.shard, place.shards}, state, coding, options,
                                                   nullptr, summary));
    BITSNAP_TRY(directories_.sync_checkpoints());
    record.step = step;
    record.time_unix_ms = os::unix_time_ms();
    record.policy = policy_name(policy());
    record.attempt = place.attempt;
    record.base = coding.base;
    record.links = coding.links;
    record.directory_sync = directories_.is_durable();
    record.shard = place.shard;
    record.shards = place.shards;
    // Its sync of the directory is that of the file, too; whoever commits looks whether both are there.
    BITSNAP_ASSIGN(const bool synced,
                   store::write_shard_record(file_system_, layout_.step_file(step, record_name), record));
    directories_.note_sync(synced);
    return {};
  };
  Result<void> written = write();
  if (!written) {
    // Only this call's file is taken back. If that fails, or a record of it is there already, it is removed with all
    // that was not committed.
    const auto record = file_system_.stat(layout_.step_file(step, record_name));
    if (record && !record->exists) static_cast<void>(directories_.remove_file(step, name));
    return tl::unexpected(std::move(written).error());
  }
  return summary;
}

Result<void> Store::Impl::check_not_too_late(std::uint64_t step, const std::string& attempt) {
  Result<void> checked = check_new_step(step);
  if (checked || checked.error().kind() != ErrorKind::invalid_argument) return checked;
  const auto retired = store::read_commit_record(file_system_, layout_, step, true);
  if (retired && retired->attempt == attempt) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("{}: step {} was committed by attempt '{}', and has been pruned since", layout_.root(),
                            step, attempt));
  }
  const std::optional<std::uint64_t> above = newest();
  if (!above) return checked;
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: step {} is not above {}, the newest: it may have been committed and pruned since",
                          layout_.root(), step, *above));
}

Result<std::vector<std::uint32_t>> Store::Impl::missing_shards(std::uint64_t step, std::uint32_t shards,
                                                               const std::string& attempt, std::uint32_t first) const {
  // One listing, not a look at each name: every rank asks, and each may have thousands of others.
  auto listed = file_system_.list_directory(layout_.step_directory(step));
  if (!listed && listed.error().kind() != ErrorKind::not_found) return tl::unexpected(std::move(listed).error());
  std::vector<std::string> names = listed ? *std::move(listed) : std::vector<std::string>();
  std::ranges::sort(names);
  std::vector<std::uint32_t> missing = {first};
  for (std::uint32_t shard = first + 1; shard < shards; ++shard) {
    if (!std::ranges::binary_search(names, store::shard_record_name(shard, shards, attempt))) missing.push_back(shard);
  }
  return missing;
}

Result<CommitOutcome> Store::Impl::commit(std::uint64_t step, std::uint32_t shards, const std::string& attempt) {
  BITSNAP_TRY(check_place(0, shards, attempt));
  BITSNAP_ASSIGN(const WriteGuard guard, begin_writing(os::LockKind::shared));
  BITSNAP_TRY(refresh_newest());

  // Somebody else may have committed it, before this call or during it.
  const auto committed_already = [&]() -> Result<std::optional<CheckpointInfo>> {
    auto record = store::read_commit_record(file_system_, layout_, step);
    if (!record && record.error().kind() == ErrorKind::not_found) return std::optional<CheckpointInfo>();
    if (!record) return tl::unexpected(std::move(record).error());
    if (record->attempt != attempt) {
      return fail(ErrorKind::invalid_argument, fmt::format("{}: step {} was committed by attempt '{}', not '{}'",
                                                           layout_.root(), step, record->attempt, attempt));
    }
    BITSNAP_TRY(directories_.sync_step(step));
    return std::optional(store::checkpoint_info(*record, store::serialize_commit_record(*record).size()));
  };
  const auto wait_for = [&](std::uint32_t first) -> Result<CommitOutcome> {
    BITSNAP_ASSIGN(std::optional<CheckpointInfo> there, committed_already());
    if (there) return CommitOutcome{std::move(there), {}};
    BITSNAP_ASSIGN(std::vector<std::uint32_t> missing, missing_shards(step, shards, attempt, first));
    return CommitOutcome{std::nullopt, std::move(missing)};
  };
  BITSNAP_ASSIGN(std::optional<CheckpointInfo> earlier, committed_already());
  if (earlier) return CommitOutcome{std::move(earlier), {}};
  BITSNAP_TRY(check_not_too_late(step, attempt));

  store::CommitRecord record;
  record.step = step;
  record.attempt = attempt;
  record.policy = policy_name(policy());
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    const std::string path = layout_.step_file(step, store::shard_record_name(shard, shards, attempt));
    auto part = store::read_shard_record(file_system_, path);
    if (!part && part.error().kind() == ErrorKind::not_found) return wait_for(shard);
    if (!part) return tl::unexpected(std::move(part).error());
    if (part->step != step || part->shard != shard || part->shards != shards || part->attempt != attempt) {
      return fail(ErrorKind::corrupt, fmt::format("{}: is about another shard than its name says", path));
    }
    // The record is written last, but a crash may have spared it and not the file.
    const std::string file_path = layout_.step_file(step, part->file.file);
    auto file = file_system_.open(file_path);
    if (!file && file.error().kind() == ErrorKind::not_found) return wait_for(shard);
    if (!file) return tl::unexpected(std::move(file).error());
    BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(**file));
    if ((*file)->size_bytes() != part->file.bytes || footer.id != part->file.id) {
      return fail(ErrorKind::corrupt, fmt::format("{}: is not the file that {} is about", file_path, path));
    }
    // A prune between the two may have taken away what it was coded against.
    BITSNAP_TRY(reader_->check_references(step, part->file));
    record.time_unix_ms = std::max(record.time_unix_ms, part->time_unix_ms);
    if (part->base) record.base = std::max(record.base.value_or(0), *part->base);
    record.links = std::max(record.links, part->links);
    record.directory_sync = record.directory_sync && part->directory_sync;
    record.policy = part->policy;
    record.shards.push_back(std::move(part->file));
  }

  BITSNAP_TRY(directories_.sync_step(step));
  BITSNAP_TRY(directories_.sync_checkpoints());
  auto written = store::write_commit_record(file_system_, layout_, record);
  if (!written) {
    // Somebody else was faster; any other failure is one of this call, whatever stands there now.
    if (written.error().kind() == ErrorKind::invalid_argument || written.error().kind() == ErrorKind::not_found) {
      BITSNAP_ASSIGN(earlier, committed_already());
      if (earlier) return CommitOutcome{std::move(earlier), {}};
    }
    return tl::unexpected(std::move(written).error());
  }
  directories_.note_sync(*written);
  // What is left of this attempt and of earlier ones.
  if (const auto strays = directories_.strays(step, &record)) {
    for (const std::string& stray : *strays) static_cast<void>(directories_.remove_file(step, stray));
  }
  return CommitOutcome{note_committed(record), {}};
}

}  // namespace bitsnap
