// Saving: how a checkpoint is coded, its file, and its commit.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"
#include "record/base_finder.hpp"
#include "record/snapshot_recorder.hpp"
#include "store/catalog.hpp"
#include "store/store_impl.hpp"

namespace bitsnap {

using Opening = record::ShardedBases::Opening;

Store::Impl::Coding Store::Impl::choose_coding() {
  Coding coding;
  const std::optional<std::uint64_t> last = newest();
  if (!last) return coding;
  const std::uint64_t step = *last;
  const Result<store::CommitRecord>& record = record_of(step, known_[step]);
  if (!record) {
    coding.damage = record.error();
    return coding;
  }
  coding.finder = step;
  const std::uint32_t max_depth = options_.max_depth.value_or(run_.max_depth);
  if (record->links >= max_depth) return coding;  // a keyframe: it refers to what is unchanged, and builds on nothing
  coding.base = step;
  if (options_.base_rule.value_or(run_.base_rule) == BaseRule::keyframe) {
    std::shared_ptr<const Result<store::CommitRecord>> at = known_[step].record;
    while ((*at)->base) {
      const std::uint64_t earlier = *(*at)->base;
      Result<Known*> known = find_known(earlier);
      if (!known || *known == nullptr) {  // pruned, as nothing in it was needed: there is no keyframe to code against
        if (!known) coding.damage = std::move(known).error();
        coding.base.reset();
        return coding;
      }
      const Result<store::CommitRecord>& next = record_of(earlier, **known);
      if (!next) {
        coding.damage = next.error();
        coding.base.reset();
        return coding;
      }
      at = (*known)->record;
    }
    const store::CommitRecord& keyframe = **at;
    const auto refers_to_what_is_there = [&](const store::ShardFile& file) {
      return reader_->check_references(keyframe.step, file).has_value();
    };
    // What a pruned one refers to may have gone, unless a keyframe was to be coded against when it was pruned.
    if (known_[keyframe.step].state == store::StepState::retired &&
        !std::ranges::all_of(keyframe.shards, refers_to_what_is_there)) {
      coding.base.reset();
      return coding;
    }
    coding.base = keyframe.step;
    coding.finder = coding.base;
  }
  coding.max_depth = max_depth;
  coding.links = record->links + 1;
  return coding;
}

SaveOptions Store::Impl::save_options() const {
  SaveOptions save;
  save.policy = policy();
  save.objective = objective();
  save.store_bytes_per_second = options_.store_bytes_per_second.value_or(run_.store_bytes_per_second);
  save.codec = options_.codec;
  save.loss = loss();
  return save;
}

void Store::Impl::offer_base(std::uint64_t step, std::uint32_t shard, store::BaseMaker make) {
  const std::lock_guard lock(mutex_);
  offer_.reset();
  if (make != nullptr) offer_ = Offer{step, shard, std::move(make)};
}

void Store::Impl::forget_base() {
  const std::lock_guard lock(mutex_);
  forget_bases();
}

// What was offered of this shard, or the snapshot itself.
std::shared_ptr<const Base> Store::Impl::offered(std::uint64_t step, std::uint32_t shard,
                                                 std::shared_ptr<const Snapshot> snapshot) const {
  if (offer_ && offer_->step == step && offer_->shard == shard) {
    if (std::shared_ptr<const Base> made = offer_->make(snapshot)) return made;
  }
  return snapshot;
}

Result<store::ShardFile> Store::Impl::write_file(std::uint64_t step, const std::string& name,
                                                 record::ShardedBases::Place own, const State& state,
                                                 const Coding& coding, const RunOptions& options,
                                                 store::StateKeeper* keeper, store::BaseWatch& watch,
                                                 SaveSummary& summary) {
  SaveOptions save = save_options();
  save.max_depth = coding.max_depth;
  save.progress = options.progress;

  // What others hold open may have gone from the store, and been replaced, since: a file that is written refers to what
  // is there now.
  store::CheckpointReader reader(file_system_, layout_, options_.limits);

  // What the finder gives out must not outlive `watch`, which is the caller's: it ends with this call.
  const std::shared_ptr<store::BaseWatch> shared_watch(&watch, [](store::BaseWatch*) {});
  std::optional<record::ShardedBases> bases;
  if (coding.finder) {
    const Result<store::CommitRecord>& found = record_of(*coding.finder, known_[*coding.finder]);
    if (!found) {
      watch.failed = true;
      return tl::unexpected(found.error());
    }
    const store::CommitRecord& base = *found;
    bases.emplace(static_cast<std::uint32_t>(base.shards.size()), own,
                  [&, own](std::uint32_t number, Opening opening) -> Result<std::shared_ptr<const Base>> {
                    const auto watched = [&](std::shared_ptr<const Base> there) {
                      return std::make_shared<store::WatchedBase>(std::move(there), shared_watch);
                    };
                    const bool is_own = number == own.shard && base.step == base_step_;
                    if (is_own && kept_ != nullptr) return watched(kept_);
                    std::shared_ptr<const Snapshot> snapshot = is_own ? open_base_ : nullptr;
                    if (snapshot == nullptr) {
                      const store::ShardFile& file = base.shards[number];
                      auto opened = opening == Opening::look ? reader.open_alone(base.step, file)
                                                             : reader.open_file(base.step, file);
                      // What is damaged in a shard that may hold nothing for this one is not this one's trouble.
                      if (!opened && opening == Opening::look && store::is_damage(opened.error())) return nullptr;
                      if (!opened) {
                        watch.failed = true;
                        return tl::unexpected(std::move(opened).error());
                      }
                      snapshot = std::move(*opened);
                    }
                    if (number != own.shard) return watched(std::move(snapshot));
                    return watched(offered(base.step, number, std::move(snapshot)));
                  });
  }

  const std::string path = layout_.step_file(step, name);
  BITSNAP_ASSIGN(std::unique_ptr<os::WritableFile> file, file_system_.create(path));
  const auto executor = exec::make_executor(options.threads);
  auto recorded = record::record_snapshot(state, save, bases ? &*bases : nullptr, keeper, *file, *executor);
  if (!recorded) return tl::unexpected(name_file(std::move(recorded).error(), path));
  BITSNAP_TRY(file->sync());
  BITSNAP_TRY(file->close());
  summary = recorded->summary;

  store::ShardFile written;
  written.file = name;
  written.id = recorded->summary.id;
  written.bytes = recorded->summary.stored_bytes;
  written.raw_bytes = recorded->summary.raw_bytes;
  written.depth = recorded->depth;
  // From here on what fails is the base: with what it refers to, the file can or cannot be read.
  const auto refer = [&]() -> Result<void> {
    for (const record::Reference& reference : recorded->references) {
      BITSNAP_ASSIGN(const store::CheckpointReader::Place place, reader.place_of(reference.name, reference.id));
      written.references.push_back({reference.id, place.step, place.shard, reference.standalone});
    }
    store::CheckpointReader fresh(file_system_, layout_, options_.limits);
    BITSNAP_ASSIGN(written_, fresh.open_file(step, written));
    return {};
  };
  if (Result<void> referred = refer(); !referred) {
    watch.failed = true;
    return tl::unexpected(std::move(referred).error());
  }
  return written;
}

Result<store::ShardFile> Store::Impl::write_file_somehow(std::uint64_t step, const std::string& name,
                                                         record::ShardedBases::Place own, const State& state,
                                                         Coding& coding, const RunOptions& options,
                                                         store::StateKeeper* keeper, SaveSummary& summary) {
  store::BaseWatch watch;
  auto written = write_file(step, name, own, state, coding, options, keeper, watch, summary);
  if (written || !watch.failed || written.error().kind() == ErrorKind::cancelled) return written;
  // The base is damaged or gone. That must not keep the training from saving.
  forget_bases();
  coding = Coding{std::nullopt, std::nullopt, 0, 0, std::move(written).error()};
  if (const auto file = file_system_.stat(layout_.step_file(step, name)); file && file->exists) {
    BITSNAP_TRY(directories_.remove_file(step, name));
  }
  store::BaseWatch none;
  return write_file(step, name, own, state, coding, options, keeper, none, summary);
}

Result<CheckpointInfo> Store::Impl::save(std::uint64_t step, const State& state, const RunOptions& options) {
  BITSNAP_ASSIGN(const WriteGuard guard, begin_writing(os::LockKind::exclusive));
  BITSNAP_TRY(refresh_newest());
  BITSNAP_TRY(check_new_step(step));
  if (known_.contains(step)) BITSNAP_TRY(directories_.remove(step));  // not committed, or it would not be new
  known_.erase(step);

  Coding coding = choose_coding();
  store::StateKeeper keeper(options_.base_memory_bytes / 2, std::move(spare_));
  spare_.clear();
  store::CommitRecord record;
  const auto write = [&]() -> Result<void> {
    BITSNAP_TRY(directories_.create(step));
    SaveSummary summary;
    BITSNAP_ASSIGN(store::ShardFile file, write_file_somehow(step, store::shard_file_name(0, 1, ""), {0, 1}, state,
                                                             coding, options, &keeper, summary));
    BITSNAP_TRY(directories_.sync_step(step));
    BITSNAP_TRY(directories_.sync_checkpoints());
    record.step = step;
    record.time_unix_ms = os::unix_time_ms();
    record.policy = policy_name(policy());
    record.base = coding.base;
    record.links = coding.links;
    record.directory_sync = directories_.is_durable();
    record.shards.push_back(std::move(file));
    return {};
  };
  if (Result<void> written = write(); !written) {
    give_up(step, false);
    return tl::unexpected(std::move(written).error());
  }
  BITSNAP_ASSIGN(CheckpointInfo info, commit_record(record));
  info.damage = std::move(coding.damage);
  keep_as_base(record, keeper);
  return info;
}

// Makes the checkpoint exist, and makes sure that it is known whether it does.
Result<CheckpointInfo> Store::Impl::commit_record(const store::CommitRecord& record) {
  const std::uint64_t step = record.step;
  auto committed = store::write_commit_record(file_system_, layout_, record);
  if (!committed) {
    // Whether the record is there, and outlives a crash, nobody can say now: nothing may be built upon it.
    give_up(step, committed.error().kind() != ErrorKind::invalid_argument);
    return tl::unexpected(std::move(committed).error());
  }
  directories_.note_sync(*committed);
  return note_committed(record);
}

CheckpointInfo Store::Impl::note_committed(const store::CommitRecord& record) {
  Known& known = known_[record.step];
  known.state = store::StepState::committed;
  known.record_bytes = store::serialize_commit_record(record).size();
  known.record = std::make_shared<const Result<store::CommitRecord>>(record);
  update_catalog();
  return store::checkpoint_info(record, known.record_bytes);
}

// Takes back what was written of a step, and its record if that may be this handle's. If that fails the handle cannot
// go on; nor if there is a record of somebody else, who should not be there.
void Store::Impl::give_up(std::uint64_t step, bool record_is_own) {
  const auto record = file_system_.stat(layout_.commit(step));
  if (!record_is_own && record && record->exists) {
    broken_ = Error(ErrorKind::busy, fmt::format("{}: somebody else committed step {} in spite of the lock; open the "
                                                 "store again",
                                                 layout_.root(), step));
    return;
  }
  const auto there = file_system_.stat(layout_.step_directory(step));
  if (there && !there->exists) return;
  Result<void> removed = there ? directories_.remove(step) : tl::unexpected(there.error());
  if (removed) return;
  broken_ = Error(ErrorKind::io,
                  fmt::format("{}: what was written of step {} could not be taken back ({}); open the store again",
                              layout_.root(), step, removed.error().message()));
}

void Store::Impl::keep_as_base(const store::CommitRecord& record, store::StateKeeper& keeper) {
  const bool is_next_base =
      options_.base_rule.value_or(run_.base_rule) == BaseRule::previous || record.links == 0 || kept_ == nullptr;
  if (!is_next_base) {
    spare_ = keeper.release();
    return;
  }
  std::vector<store::StreamBuffer> streams = keeper.release();
  std::shared_ptr<const Snapshot> written = std::move(written_);
  if (kept_ != nullptr) spare_ = kept_->release();
  forget_bases();
  base_step_ = record.step;
  if (streams.empty()) {
    open_base_ = std::move(written);
  } else {
    kept_ = std::make_shared<store::KeptState>(std::move(written), std::move(streams));
  }
}

void Store::Impl::forget_bases() {
  open_base_.reset();
  kept_.reset();
  written_.reset();
}

// Rewritten when enough is missing from it that listing would notice.
void Store::Impl::update_catalog() {
  constexpr std::size_t kMissing = 64;
  constexpr std::size_t kShare = 32;
  if (++catalog_missing_ < std::max(kMissing, std::max(known_.size(), all_steps_) / kShare)) return;
  catalog_missing_ = 0;
  // A cache: if it cannot be written, listing is slower, that is all.
  static_cast<void>(store::write_catalog(directories_));
}

}  // namespace bitsnap
