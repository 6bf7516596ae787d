// Saving: begin, encode (store_encode.cpp) and publish.
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "os/clock.hpp"
#include "os/memory.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {
namespace {

constexpr std::size_t kSavesPerReturn = 64;

std::string record_name(const ShardPlace& place) {
  return store::shard_record_name(place.shard, place.shards, place.attempt);
}

}  // namespace

Result<store::PendingSave> Store::Impl::save(std::uint64_t step, const std::optional<ShardPlace>& place,
                                             const State& state, const RunOptions& options, const SaveCheck& check,
                                             const CommitOptions& commit) {
  BITSNAP_TRY(store::check_new_labels(commit.labels));
  BITSNAP_TRY(store::check_files(commit.files));
  BITSNAP_ASSIGN(store::PendingSave save, begin(step, place, nullptr, commit.replace));
  save.commit = commit;
  BITSNAP_TRY(encode(save, state, options, store::Destination::disk));
  if (check) {
    if (Result<void> checked = check(*save.snapshot); !checked) {
      take_back(save);
      return tl::unexpected(std::move(checked).error());
    }
  }
  BITSNAP_TRY(publish(save));
  return save;
}

Result<store::PendingSave> Store::Impl::begin(std::uint64_t step, const std::optional<ShardPlace>& place,
                                              const store::Coding* like, bool replace) {
  if (place) BITSNAP_TRY(store::check_place(*place));
  BITSNAP_ASSIGN(store::WriteGuard guard, begin_writing(place ? os::LockKind::shared : os::LockKind::exclusive));
  BITSNAP_TRY(known_.load_newest());
  const bool replaces = replace && known_.is_replaceable(step);
  if (replaces) {
    BITSNAP_TRY(begin_replacing(step, place));
  } else {
    BITSNAP_TRY(known_.check_new(step));
  }
  std::string name = store::shard_file_name(0, 1, "");
  if (!place && (replaces || !file_system_.has_lasting_locks())) {
    BITSNAP_ASSIGN(name, directories_.free_file_name(step, name));
  } else if (place) {
    // Another rank may commit this rank's file of an earlier try at any moment. So that file is never changed, and the
    // new file gets another name.
    BITSNAP_ASSIGN(
        name, directories_.free_file_name(step, store::shard_file_name(place->shard, place->shards, place->attempt)));
  }
  if (!place && !replaces) {
    if (known_.all().contains(step)) BITSNAP_TRY(directories_.remove(step));  // uncommitted, because the step is new
    known_.erase(step);
  }
  store::PendingSave save;
  save.guard = std::move(guard);
  save.step = step;
  save.place = place;
  save.file_name = std::move(name);
  save.replaces = replaces;
  const bool is_like = like != nullptr && place && !replaces && should_code_like(*like, *place);
  // What is coded against the step that is replaced is rewritten later, and can be no base of its successor.
  const bool is_base = replaces && known_.is_referred_to(step, store::UnreadableRecord::may_refer_to_any);
  if (!is_base) save.coding = is_like ? *like : choose_coding(replaces ? known_.newest_below(step) : known_.newest());
  // Another process may have committed the base and been killed before it synced the name.
  if (place && save.coding.finder) BITSNAP_TRY(directories_.sync_step(*save.coding.finder));
  return save;
}

// The base is before the checkpoint that is replaced, so all steps have to be known.
Result<void> Store::Impl::begin_replacing(std::uint64_t step, const std::optional<ShardPlace>& place) {
  BITSNAP_TRY(known_.load_all());
  const Result<store::CommitRecord>& old = known_.record(step);
  if (!place || !old || old->attempt != place->attempt) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: attempt '{}' has committed step {}; to replace it, give another attempt", layout_.root(),
                          place->attempt, step));
}

Result<void> Store::Impl::publish(store::PendingSave& save) {
  store::CommitRecord record;
  const auto write_durably = [&]() -> Result<void> {
    std::vector<std::uint32_t> published;
    // The comparison would read the whole file from a service.
    if (save.place && save.place->shards > 1 && file_system_.has_lasting_locks()) {
      BITSNAP_ASSIGN(published, published_shards(save));
      BITSNAP_TRY(link_replica(save, published));
    }
    if (save.blob != nullptr && !save.file.is_link) BITSNAP_TRY(write_blob(save));
    if (!save.place) {
      note_stray_files(save.commit);
      BITSNAP_ASSIGN(record.files, store::write_files(directories_, save.step, "", save.commit));
    }
    // A rank that has published its shard has synced the name of the step before.
    if (published.empty()) BITSNAP_TRY(directories_.sync_checkpoints());
    if (save.place) return write_shard_record(save);
    static_cast<store::CommitHeader&>(record) = header_of(save);
    record.shards = {save.file};
    BITSNAP_ASSIGN(save.info.labels, labels_.give(record, save.commit.labels));
    return {};
  };
  if (Result<void> written = write_durably(); !written) {
    take_back(save);
    return written;
  }
  if (!save.place) {
    std::vector<std::string> labels = std::move(save.info.labels);
    BITSNAP_ASSIGN(save.info, save.replaces ? replace_record(record) : commit_record(record));
    save.info.labels = std::move(labels);
    save.info.damage = std::move(save.coding.damage);
  }
  if (save.blob != nullptr) {
    cache_->note_published(own_files_, layout_.step_file(save.step, save.file_name), *save.blob);
  } else if (is_next_base(save)) {
    cache_->keep_base(*save.snapshot, save.keeper.get());
  }
  // What a handle remembers of each checkpoint lies between the buffers of the saves. The allocator would keep more and
  // more free memory around it.
  if (++published_ % kSavesPerReturn == 0) os::return_free_memory();
  return {};
}

Result<void> Store::Impl::write_blob(const store::PendingSave& save) {
  BITSNAP_TRY(directories_.create(save.step));
  BITSNAP_ASSIGN(const std::unique_ptr<os::WritableFile> file,
                 file_system_.create(layout_.step_file(save.step, save.file_name)));
  for (std::size_t i = 0; i < save.blob->pieces(); ++i) BITSNAP_TRY(file->append(save.blob->piece(i)));
  BITSNAP_TRY(file->sync());
  return file->close();
}

store::CommitHeader Store::Impl::header_of(const store::PendingSave& save) const {
  return {.step = save.step,
          .time_unix_ms = os::unix_time_ms(),
          .policy = std::string(policy_name(*settings_.policy)),
          .attempt = save.place ? save.place->attempt : "",
          .base = save.coding.base,
          .links = save.coding.links,
          .directory_sync = directories_.is_durable(),
          .coded_share = save.coding.coded_share,
          .coded_age = save.coding.coded_age,
          .metrics = save.metrics};
}

// The sync of the directory covers the file, too. The committing rank checks that both record and file are there.
Result<void> Store::Impl::write_shard_record(const store::PendingSave& save) {
  const store::ShardRecord record{header_of(save), save.place->shard, save.place->shards, save.file};
  const std::string path = layout_.step_file(save.step, record_name(*save.place));
  BITSNAP_ASSIGN(const bool synced, store::write_shard_record(file_system_, path, record));
  directories_.note_sync(synced);
  return {};
}

void Store::Impl::take_back(const store::PendingSave& save) {
  if (!save.place && !save.replaces) return give_up(save.step, false);
  // Removes only this save's file. If that fails, or a record of the file exists already, the file stays until
  // uncommitted steps are removed.
  if (!save.place) {
    static_cast<void>(directories_.remove_file(save.step, save.file_name));
    return;
  }
  const auto record = file_system_.stat(layout_.step_file(save.step, record_name(*save.place)));
  if (record && !record->exists) static_cast<void>(directories_.remove_file(save.step, save.file_name));
}

}  // namespace bitsnap
