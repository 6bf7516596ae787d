// Committing: the commit record makes a checkpoint exist. It names the file of one rank, or the shards that several
// ranks wrote before.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "container/file_reader.hpp"
#include "store/catalog.hpp"
#include "store/store_impl.hpp"
#include "store/tensor_index.hpp"

namespace bitsnap {
namespace {

// Whether the record names the shard that the name of its file, `path`, stands for.
Result<void> check_shard_record(const store::ShardRecord& record, std::uint64_t step, const ShardPlace& place,
                                const std::string& path) {
  if (record.step == step && record.shard == place.shard && record.shards == place.shards &&
      record.attempt == place.attempt) {
    return {};
  }
  return fail(
      ErrorKind::corrupt,
      fmt::format("{}: the record names step {}, shard {} of {}, attempt '{}'; expected step {}, shard {} of {}, "
                  "attempt '{}'",
                  path, record.step, record.shard, record.shards, record.attempt, step, place.shard, place.shards,
                  place.attempt));
}

// invalid_argument if processes have saved shards of this attempt and expected another number of them: then the
// checkpoint would never be complete.
Result<void> check_shard_count(const std::vector<std::string>& files, const ShardPlace& place) {
  std::map<std::uint32_t, std::set<std::uint32_t>> found;  // by the number of shards
  for (const std::string& file : files) {
    const auto name = store::parse_shard_file_name(file);
    if (name && name->attempt == place.attempt) found[name->shards].insert(name->shard);
  }
  found.erase(place.shards);
  if (found.empty()) return {};
  const auto& [count, shards] = *found.begin();
  constexpr std::size_t kMostListed = 8;
  const std::vector<std::uint32_t> listed(
      shards.begin(), std::next(shards.begin(), static_cast<std::ptrdiff_t>(std::min(kMostListed, shards.size()))));
  return fail(
      ErrorKind::invalid_argument,
      fmt::format("attempt '{}' is to have {} shards, but there {} {}{} of {}; all processes must give the same "
                  "number of shards",
                  place.attempt, place.shards, shards.size() == 1 ? "is shard" : "are shards", fmt::join(listed, ", "),
                  shards.size() > kMostListed ? ", ..." : "", count));
}

Result<void> check_metadata(const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::uint64_t bytes = 0;
  std::set<std::string_view> keys;
  for (const auto& [key, value] : metadata) {
    if (!keys.insert(key).second) {
      return fail(ErrorKind::invalid_argument, fmt::format("metadata: key {} appears twice", quote_name(key)));
    }
    if (!is_utf8(key) || !is_utf8(value)) {
      return fail(ErrorKind::invalid_argument, fmt::format("metadata: {} is not valid UTF-8", quote_name(key)));
    }
    bytes += key.size() + value.size();
  }
  if (bytes <= kMaxCommitMetadataBytes) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("metadata must have at most {} bytes in all, got {}", kMaxCommitMetadataBytes, bytes));
}

}  // namespace

// Makes the checkpoint exist. After a failure, makes sure that it does not exist, or that the handle stops.
Result<Checkpoint> Store::Impl::commit_record(const store::CommitRecord& record) {
  const std::uint64_t step = record.step;
  auto committed = store::write_commit_record(file_system_, layout_, record);
  if (!committed) {
    // Now nobody knows whether the record is there and would survive a crash, so nothing may be coded against this
    // step.
    give_up(step, committed.error().kind() != ErrorKind::invalid_argument);
    return tl::unexpected(std::move(committed).error());
  }
  directories_.note_sync(*committed);
  return note_committed(record);
}

// A crash leaves the old checkpoint or the new one. Until the record is replaced, the files of both are there.
Result<Checkpoint> Store::Impl::replace_record(const store::CommitRecord& record) {
  BITSNAP_TRY(known_.load_all());
  BITSNAP_TRY(detach({record.step}, {}));
  const auto replaced = store::replace_commit_record(file_system_, layout_, record, false);
  if (!replaced) {
    // Nobody knows which of the two records is there, and which would survive a crash. So the files of both stay.
    lose_sight();
    return tl::unexpected(replaced.error());
  }
  directories_.note_sync(*replaced);
  remove_leftovers(record);
  return note_committed(record);
}

// Removes files of the step that its record does not name: those of a replaced checkpoint, or of other attempts. If
// that fails, the next prune removes them.
void Store::Impl::remove_leftovers(const store::CommitRecord& record) {
  const auto strays = directories_.strays(record.step, &record);
  strays_removed_ = strays_removed_ && strays;
  if (!strays) return;
  for (const std::string& stray : *strays) {
    if (!directories_.remove_file(record.step, stray)) strays_removed_ = false;
  }
}

Checkpoint Store::Impl::note_committed(const store::CommitRecord& record) {
  store::KnownStep& known = known_[record.step];
  known.state = store::StepState::committed;
  known.set_record(record);
  update_catalog();
  return store::checkpoint_info(record, known.record_bytes);
}

// Removes what was written of a step, and the record too if it may be this handle's. The handle becomes unusable if
// that fails, or if somebody else has written a record in spite of the lock.
void Store::Impl::give_up(std::uint64_t step, bool record_is_own) {
  const auto record = file_system_.stat(layout_.commit(step));
  if (!record_is_own && record && record->exists) {
    broken_ = Error(
        ErrorKind::busy,
        fmt::format("{}: another writer committed step {} although this writer holds the lock; open the store again",
                    layout_.root(), step));
    return;
  }
  const auto there = file_system_.stat(layout_.step_directory(step));
  if (there && !there->exists) return;
  Result<void> removed = there ? directories_.remove(step) : tl::unexpected(there.error());
  if (removed) return;
  broken_ =
      Error(ErrorKind::io, fmt::format("{}: the incomplete step {} could not be removed ({}); open the store again",
                                       layout_.root(), step, removed.error().message()));
}

// Rewrites the catalog when it lacks so many checkpoints that listing would become slow.
void Store::Impl::update_catalog() {
  constexpr std::size_t kMissing = 64;
  constexpr std::size_t kShare = 32;
  if (++catalog_missing_ < std::max(kMissing, known_.count() / kShare)) return;
  catalog_missing_ = 0;
  // The catalog is a cache: if it cannot be written, listing is only slower.
  static_cast<void>(store::write_catalog(directories_));
}

Result<void> Store::Impl::check_not_too_late(std::uint64_t step, const std::string& attempt) {
  Result<void> checked = known_.check_new(step);
  if (checked || checked.error().kind() != ErrorKind::invalid_argument) return checked;
  const auto retired = store::read_commit_record(file_system_, layout_, step, true);
  if (retired && retired->attempt == attempt) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: step {} was committed by attempt '{}' and pruned since",
                                                         layout_.root(), step, attempt));
  }
  const std::optional<std::uint64_t> above = known_.newest();
  if (!above) return checked;
  return fail(
      ErrorKind::invalid_argument,
      fmt::format(
          "{}: step must be greater than {}, the newest step, got {}; it may have been committed and pruned since",
          layout_.root(), *above, step));
}

Result<std::vector<std::uint32_t>> Store::Impl::missing_shards(std::uint64_t step, std::uint32_t shards,
                                                               const std::string& attempt, std::uint32_t first) const {
  // One listing instead of a query per name, because every rank asks, and there may be thousands of ranks.
  auto listed = file_system_.list_directory(layout_.step_directory(step));
  if (!listed && listed.error().kind() != ErrorKind::not_found) return tl::unexpected(std::move(listed).error());
  std::vector<std::string> names = listed ? *std::move(listed) : std::vector<std::string>();
  BITSNAP_TRY(check_shard_count(names, {0, shards, attempt}).map_error([&](const Error& error) {
    return Error(error).within(fmt::format("{}: step {}", layout_.root(), step));
  }));
  std::ranges::sort(names);
  std::vector<std::uint32_t> missing = {first};
  for (std::uint32_t shard = first + 1; shard < shards; ++shard) {
    if (!std::ranges::binary_search(names, store::shard_record_name(shard, shards, attempt))) missing.push_back(shard);
  }
  return missing;
}

// A cache: if it cannot be written, reading opens all shards.
void Store::Impl::write_tensors(const store::CommitRecord& record) {
  if (record.shards.size() == 1) return;
  const auto tensors = store::index_tensors(file_system_, layout_, *reader_, record, options_.limits, 0);
  if (tensors) static_cast<void>(store::write_tensor_index(file_system_, layout_, record, *tensors));
}

Result<CommitOutcome> Store::Impl::commit(std::uint64_t step, std::uint32_t shards, const std::string& attempt,
                                          const CommitOptions& options) {
  BITSNAP_TRY(store::check_place({0, shards, attempt}));
  BITSNAP_TRY(store::check_new_labels(options.labels));
  BITSNAP_TRY(check_metadata(options.metadata));
  BITSNAP_TRY(store::check_files(options.files));
  std::optional<CommitOutcome> outcome;
  for (const os::LockKind kind : {os::LockKind::shared, os::LockKind::exclusive}) {
    if (kind == os::LockKind::shared && !file_system_.has_lasting_locks()) continue;  // it would exclude no prune
    const bool is_alone = kind == os::LockKind::exclusive || lock_ != nullptr;
    auto guard = begin_writing(kind);
    if (!guard && is_alone && guard.error().kind() == ErrorKind::busy) {
      // The other ranks want the same lock for the same commit. One of them may have had it.
      BITSNAP_ASSIGN(auto there, committed_already(step, attempt, options.replace));
      if (there) outcome = CommitOutcome{std::move(there), {}};
    }
    if (!outcome && !guard) return tl::unexpected(std::move(guard).error());
    if (!outcome) {
      BITSNAP_ASSIGN(outcome, commit_shards(step, shards, attempt, options, is_alone));
    }
    if (outcome) break;
  }
  if (!*outcome) return *std::move(outcome);
  // Another rank may have committed without these labels.
  std::vector<std::string>& given = outcome->checkpoint->labels;
  const auto is_given = [&](const std::string& name) { return std::ranges::find(given, name) != given.end(); };
  if (std::ranges::all_of(options.labels, is_given)) return *std::move(outcome);
  if (Result<void> labelled = label(step, options.labels); !labelled) {
    return tl::unexpected(
        std::move(labelled).error().within(fmt::format("step {} is committed, but without its labels", step)));
  }
  BITSNAP_ASSIGN(outcome->checkpoint, checkpoint(step));
  return *std::move(outcome);
}

// Another rank may have committed the step, before a call or during it.
Result<std::optional<Checkpoint>> Store::Impl::committed_already(std::uint64_t step, const std::string& attempt,
                                                                 bool is_replaced) {
  auto record = store::read_commit_record(file_system_, layout_, step);
  if (!record && record.error().kind() == ErrorKind::not_found) return std::optional<Checkpoint>();
  if (!record) return tl::unexpected(std::move(record).error());
  if (record->attempt != attempt) {
    if (is_replaced) return std::optional<Checkpoint>();
    return fail(ErrorKind::invalid_argument, fmt::format("{}: step {} was committed by attempt '{}', not '{}'",
                                                         layout_.root(), step, record->attempt, attempt));
  }
  BITSNAP_TRY(directories_.sync_step(step));
  std::vector<Checkpoint> found = {store::checkpoint_info(*record, store::serialize_commit_record(*record).size())};
  store::Labels::note(found, labels_.all());
  return std::optional(std::move(found.front()));
}

Result<std::optional<CommitOutcome>> Store::Impl::commit_shards(std::uint64_t step, std::uint32_t shards,
                                                                const std::string& attempt,
                                                                const CommitOptions& options, bool is_alone) {
  BITSNAP_TRY(known_.load_newest());
  const bool replaces = options.replace && known_.is_replaceable(step);
  const auto wait_for = [&](std::uint32_t first) -> Result<std::optional<CommitOutcome>> {
    BITSNAP_ASSIGN(std::optional<Checkpoint> there, committed_already(step, attempt, replaces));
    if (there) return CommitOutcome{std::move(there), {}};
    BITSNAP_ASSIGN(std::vector<std::uint32_t> missing, missing_shards(step, shards, attempt, first));
    return CommitOutcome{std::nullopt, std::move(missing)};
  };
  BITSNAP_ASSIGN(std::optional<Checkpoint> earlier, committed_already(step, attempt, replaces));
  if (earlier) return CommitOutcome{std::move(earlier), {}};
  if (!replaces) BITSNAP_TRY(check_not_too_late(step, attempt));
  BITSNAP_ASSIGN(const bool changes_labels, labels_.concerns(step, options.labels));

  store::CommitRecord record;
  record.step = step;
  record.attempt = attempt;
  record.policy = policy_name(*settings_.policy);
  record.metadata = options.metadata;
  for (std::uint32_t shard = 0; shard < shards; ++shard) {
    const std::string path = layout_.step_file(step, store::shard_record_name(shard, shards, attempt));
    auto part = store::read_shard_record(file_system_, path);
    if (!part && part.error().kind() == ErrorKind::not_found) return wait_for(shard);
    if (!part) return tl::unexpected(std::move(part).error());
    BITSNAP_TRY(check_shard_record(*part, step, {shard, shards, attempt}, path));
    // The shard record is written after the file, but a crash may keep the record and lose the file.
    BITSNAP_ASSIGN(const bool is_there, check_shard_file(*part, path));
    if (!is_there) return wait_for(shard);
    record.time_unix_ms = std::max(record.time_unix_ms, part->time_unix_ms);
    if (part->base) record.base = std::max(record.base.value_or(0), *part->base);
    record.links = std::max(record.links, part->links);
    record.directory_sync = record.directory_sync && part->directory_sync;
    record.policy = part->policy;
    record.coded_share = part->coded_share;
    record.coded_age = part->coded_age;
    if (record.metrics.empty()) record.metrics = std::move(part->metrics);
    record.shards.push_back(std::move(part->file));
  }

  store::settle_links(record);
  if ((changes_labels || replaces) && !is_alone) return std::optional<CommitOutcome>();

  note_stray_files(options);
  BITSNAP_ASSIGN(record.files, store::write_files(directories_, step, attempt, options));
  BITSNAP_TRY(directories_.sync_checkpoints());
  std::vector<std::string> labels;
  if (changes_labels) {
    BITSNAP_ASSIGN(labels, labels_.give(record, options.labels));
  }
  if (replaces) {
    CommitOutcome outcome;
    BITSNAP_ASSIGN(outcome.checkpoint, replace_record(record));
    write_tensors(record);
    outcome.checkpoint->labels = std::move(labels);
    return outcome;
  }
  auto written = store::write_commit_record(file_system_, layout_, record);
  if (!written) {
    // Another rank may have committed first. Every other failure is this call's, whatever the store holds now.
    if (written.error().kind() == ErrorKind::invalid_argument || written.error().kind() == ErrorKind::not_found) {
      BITSNAP_ASSIGN(earlier, committed_already(step, attempt, replaces));
      if (earlier) return CommitOutcome{std::move(earlier), {}};
    }
    return tl::unexpected(std::move(written).error());
  }
  directories_.note_sync(*written);
  remove_leftovers(record);
  write_tensors(record);
  CommitOutcome outcome{note_committed(record), {}};
  outcome.checkpoint->labels = std::move(labels);
  return outcome;
}

// Whether the file that a shard record names is there. Returns corrupt if it is another one, or if what it refers to is
// gone: a prune after the shard was saved may have removed that.
Result<bool> Store::Impl::check_shard_file(const store::ShardRecord& part, const std::string& record_path) const {
  const std::string path = layout_.step_file(part.step, part.file.file);
  auto file = file_system_.open(path);
  if (!file && file.error().kind() == ErrorKind::not_found) return false;
  if (!file) return tl::unexpected(std::move(file).error());
  BITSNAP_ASSIGN(const container::Footer footer, container::read_footer(**file));
  if ((*file)->size_bytes() != part.file.bytes || footer.id != part.file.id) {
    return fail(ErrorKind::corrupt,
                fmt::format("{}: holds {} in {} bytes, {} names {} in {} bytes", path, footer.id.to_hex(),
                            (*file)->size_bytes(), record_path, part.file.id.to_hex(), part.file.bytes));
  }
  BITSNAP_TRY(reader_->check_references(part.step, part.file));
  return true;
}

Result<void> Store::Impl::label(std::uint64_t step, const std::vector<std::string>& labels) {
  BITSNAP_TRY(store::check_new_labels(labels));
  BITSNAP_ASSIGN(const store::WriteGuard guard, begin_writing(os::LockKind::exclusive));
  BITSNAP_TRY(known_.load_newest());
  BITSNAP_ASSIGN(const store::KnownStep* const known, known_.find(step));
  if (known == nullptr || known->state != store::StepState::committed)
    return tl::unexpected(directories_.not_found(step));
  // Another rank may have committed the step and been killed before it synced the name.
  if (lock_ == nullptr) BITSNAP_TRY(directories_.sync_step(step));
  return labels_.set(step, labels);
}

Result<void> Store::Impl::unlabel(const std::string& label) {
  BITSNAP_TRY(store::check_labels({label}));
  BITSNAP_ASSIGN(const store::WriteGuard guard, begin_writing(os::LockKind::exclusive));
  return labels_.remove(label);
}

}  // namespace bitsnap
