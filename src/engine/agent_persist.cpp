// What the writing thread does: saving into the store, where the encoding of such a save happens, too, and committing
// what several ranks wrote.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/agent_rank.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

// Shards that wait for those of other ranks, of each of which it is looked whether they are there.
constexpr std::size_t kMaxUncommitted = 64;

}  // namespace

Result<std::shared_ptr<Store>> AgentRank::open_store() {
  const std::lock_guard store_lock(store_mutex_);
  StoreOptions options;
  {
    const std::lock_guard lock(mutex_);
    // One that another thread still uses is that thread's until it is done, and would not let another be opened.
    if (store_ != nullptr && (!must_reopen_ || store_.use_count() > 1)) return store_;
    store_.reset();
    must_reopen_ = false;
    options.access = job_.world_size > 1 ? StoreAccess::shared : StoreAccess::write;
    options.policy = settings_.policy;
    options.objective = settings_.objective;
    options.store_bytes_per_second = settings_.store_bytes_per_second;
    options.base_rule = settings_.base_rule;
    options.max_depth = settings_.max_depth;
    options.codec = settings_.codec;
    options.loss = settings_.loss;
  }
  constexpr std::uint64_t kLockWaitMs = 10'000;
  options.lock_wait_ms = kLockWaitMs;
  BITSNAP_ASSIGN(store_, store::open_store(mirror_, job_.store_path, options));
  note(*store_);
  return store_;
}

SaveOptions AgentRank::memory_options() {
  {
    // The store says what is not said otherwise, and is only read for that: one that somebody has locked keeps nobody
    // from memory, nor does one that the writer waits for.
    const std::unique_lock store_lock(store_mutex_, std::try_to_lock);
    bool is_known = false;
    {
      const std::lock_guard lock(mutex_);
      is_known = says_.has_value();
    }
    if (store_lock && !is_known) {
      if (const auto store = store::open_store(mirror_, job_.store_path, {.access = StoreAccess::read})) note(**store);
    }
  }
  const std::lock_guard lock(mutex_);
  SaveOptions options = says_.value_or(SaveOptions());
  // Rules are those of the policy that they were said with.
  if (settings_.policy && *settings_.policy != options.policy) options.loss = {};
  options.policy = settings_.policy.value_or(options.policy);
  options.objective = settings_.objective.value_or(options.objective);
  options.loss = settings_.loss.value_or(options.loss);
  options.codec = settings_.codec;
  options.store_bytes_per_second = settings_.store_bytes_per_second.value_or(0);
  return options;
}

void AgentRank::note(const Store& store) {
  const std::lock_guard lock(mutex_);
  says_ = SaveOptions{.policy = store.policy(), .objective = store.objective(), .loss = store.loss()};
}

void AgentRank::persist(Persisting& save) {
  save.event.ticket = save.job.staged.ticket;
  const std::uint64_t step = save.job.staged.step;
  std::shared_ptr<Store> store;
  const auto run = [&]() -> Result<bool> {
    BITSNAP_ASSIGN(store, open_store());
    return write(save, *store);
  };
  auto written = no_throw("persisting", run);
  if (save.gate.owns_lock()) save.gate.unlock();
  bool was_encoded = false;
  {
    const std::lock_guard lock(mutex_);
    was_encoded = save.is_encoded;
    // A handle that could not take back what it had begun writes nothing any more.
    must_reopen_ |= !written;
  }
  bool is_too_many = false;
  if (!written) {
    if (!was_encoded) free_slot(save.job.staged.slot);
    fail_job(save.job, std::move(written).error().within(fmt::format("persisting step {}", step)));
  } else if (*written) {
    finish(save.event, step);
  } else {
    const std::lock_guard lock(mutex_);
    uncommitted_.push_back({step, save.job.attempt, save.event});
    is_too_many = uncommitted_.size() > kMaxUncommitted;
  }
  if (is_too_many) give_up_oldest();
  release_encoder(save);
  mirror_.forget_all_but([&](const Blob& blob) { return tier_.holds(blob); });
  // Nor does the store keep the file open in memory that the budget has no room for: it is on the disk.
  const auto newest = tier_.newest();
  if (store != nullptr && (!newest || newest->step != step)) store::forget_base(*store);
}

// Whether it is committed.
Result<bool> AgentRank::write(Persisting& save, Store& store) {
  const Staged& staged = save.job.staged;
  if (staged.again) {
    // An agent that has gone may have come further than it could tell.
    BITSNAP_ASSIGN(const std::vector<std::uint64_t> steps, store.steps());
    if (std::ranges::binary_search(steps, staged.step)) {
      free_slot(staged.slot);
      release_encoder(save);
      return true;
    }
  }
  for (std::size_t i = 0; i < save.state.tensors.size(); ++i) {
    TensorSource& tensor = save.state.tensors[i];
    if (tensor.data == nullptr) continue;
    // The store encodes a second time where its base turns out to be damaged: by then the slot may be another save's,
    // and what is in memory is the same state.
    tensor.read = [&save, i, data = tensor.data](std::uint64_t offset, std::span<std::byte> out) -> Result<void> {
      if (save.snapshot != nullptr) return save.snapshot->read_bytes(i, offset, out);
      std::memcpy(out.data(), data + offset, out.size());
      return {};
    };
    tensor.data = nullptr;
  }
  store::offer_base(store, 0, rank_, nullptr);
  if (const auto held = held_step()) {
    store::offer_base(store, *held, rank_, [this](std::shared_ptr<const Snapshot> snapshot) {
      warm_up(*snapshot);
      return snapshot;
    });
  }
  save.gate = std::unique_lock(job_.encode_gate);
  save.stopwatch = {};
  RunOptions run;
  run.threads = job_.threads;
  if (job_.world_size == 1) {
    BITSNAP_ASSIGN(const CheckpointInfo info, store.save(staged.step, save.state, run));
    if (info.damage) note_error(*info.damage);
    save.event.raw_bytes = info.raw_bytes;
    save.event.base = info.base;
  } else {
    const ShardPlace place{.shard = rank_, .shards = job_.world_size, .attempt = save.job.attempt};
    BITSNAP_ASSIGN(const SaveSummary summary, store.save_shard(staged.step, place, save.state, run));
    save.event.raw_bytes = summary.raw_bytes;
  }
  save.event.write_us = elapsed_us(save.stopwatch) - save.event.encode_us;
  return job_.world_size == 1;
}

// On the writing thread, when the store has encoded a file and is about to write it; also when it rewrites one.
void AgentRank::note_blob(const std::shared_ptr<const Blob>& blob) {
  Persisting* save = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (persisting_ != nullptr && !persisting_->is_encoded) save = persisting_.get();
  }
  if (save == nullptr || !save->gate.owns_lock()) return;
  save->gate.unlock();
  save->event.encode_us = elapsed_us(save->stopwatch);
  save->event.stored_bytes = blob->size_bytes();
  std::uint64_t raw_bytes = 0;
  for (const TensorSource& tensor : save->state.tensors) {
    if (!tensor.info.alias_of) raw_bytes += tensor.info.size_bytes;
  }
  save->event.raw_bytes = raw_bytes;
  auto entered = enter(save->job, save->tensors, blob, save->event);
  if (entered) {
    save->snapshot = std::move(*entered);
  } else {
    note_error(entered.error());
    free_slot(save->job.staged.slot);
  }
  release_encoder(*save);
}

void AgentRank::release_encoder(Persisting& save) {
  {
    const std::lock_guard lock(mutex_);
    save.is_encoded = true;
  }
  changed_.notify_all();
}

void AgentRank::give_up_oldest() {
  Job job;
  {
    const std::lock_guard lock(mutex_);
    job.staged.ticket = uncommitted_.front().event.ticket;
    job.staged.step = uncommitted_.front().step;
    uncommitted_.pop_front();
  }
  fail_job(job, Error(ErrorKind::busy,
                      fmt::format("step {}: not all ranks have delivered it, and {} later ones wait as well",
                                  job.staged.step, kMaxUncommitted)));
}

void AgentRank::commit_what_is_whole() {
  auto store = open_store();
  if (!store) {
    note_error(store.error());
    return;
  }
  std::deque<Uncommitted> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = uncommitted_;
  }
  for (const Uncommitted& shard : waiting) {
    auto outcome = no_throw("commit", [&] { return (*store)->commit(shard.step, job_.world_size, shard.attempt); });
    // Too late, or another attempt was it: this one will never be. All else may pass.
    const bool is_over = outcome ? static_cast<bool>(*outcome) : outcome.error().kind() == ErrorKind::invalid_argument;
    if (!outcome && !is_over) {
      note_error(outcome.error());
      const std::lock_guard lock(mutex_);
      must_reopen_ = true;
    }
    if (!is_over) continue;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(uncommitted_, [&](const Uncommitted& each) { return each.event.ticket == shard.event.ticket; });
    }
    if (!outcome && !was_committed(shard)) {
      Job job;
      job.staged.ticket = shard.event.ticket;
      fail_job(job, std::move(outcome).error().within(fmt::format("committing step {}", shard.step)));
      continue;
    }
    ProgressEvent event = shard.event;
    if (outcome) event.base = outcome->checkpoint->base;
    job_.attempts.note_committed(shard.step, shard.attempt);  // before it can be pruned
    finish(event, shard.step);
  }
}

// Others may have committed it, and pruned it since.
bool AgentRank::was_committed(const Uncommitted& shard) {
  if (job_.attempts.was_committed(shard.step, shard.attempt)) return true;
  const auto retired = store::read_commit_record(mirror_, store::RunLayout(job_.store_path), shard.step, true);
  return retired && retired->attempt == shard.attempt;
}

void AgentRank::finish(const ProgressEvent& event, std::uint64_t step) {
  {
    const std::lock_guard lock(mutex_);
    ++totals_.persisted;
    totals_.write_us += event.write_us;
    totals_.last_persisted_step = step;
    ProgressEvent told = event;
    told.stage = Stage::persisted;
    tell(std::move(told));
  }
  if (rank_ == 0) prune();
}

void AgentRank::prune() {
  Retention retention;
  {
    const std::lock_guard lock(mutex_);
    retention.keep_last = settings_.keep_last;
    retention.keep_every = settings_.keep_every;
  }
  if (!retention.keep_last && !retention.keep_every) return;
  auto store = open_store();
  if (!store) return note_error(store.error());
  PruneOptions options;
  options.run.threads = job_.threads;
  auto pruned = no_throw("prune", [&] { return (*store)->prune(retention, options); });
  if (pruned) return;
  note_error(pruned.error());
  const std::lock_guard lock(mutex_);
  must_reopen_ = true;
}

}  // namespace bitsnap::engine
