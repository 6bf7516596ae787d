// The writer thread: publishes encoded saves to the store, commits the checkpoints of several ranks, and prunes. The
// encoder thread also calls open_store(), memory_settings() and is_budget_given().
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/agent_rank.hpp"
#include "engine/store_access.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

// Limit for shards that wait for other ranks; each round of commits checks all of them.
constexpr std::size_t kMaxUncommitted = 64;
// How long a shard waits for that of a rank that has left, which may come back.
constexpr std::uint64_t kComeBackNs = 2'000'000'000;

}  // namespace

void AgentRank::publish(Publication& publication) {
  const std::uint64_t step = publication.queued.staged.step;
  const bool is_in_store = !publication.save;  // an earlier agent committed the step
  const os::Stopwatch stopwatch;
  const Result<void> published = no_throw("publishing", [&]() -> Result<void> {
    if (is_in_store) return {};
    const PublishTurns::Turn turn(job_.publish_turns, publication.save->file.id);
    return Store::Impl::of(*publication.store).publish(*publication.save);
  });
  publication.save.reset();  // releases the store's lock
  publication.store.reset();
  publication.event.write_us = elapsed_us(stopwatch);
  if (!published) {
    {
      const std::lock_guard lock(mutex_);
      must_reopen_ = true;
    }
    return fail_save(publication.queued, Error(published.error()).within(fmt::format("persisting step {}", step)));
  }
  if (is_in_store || job_.world_size == 1) return finish(publication.event, step);
  const std::lock_guard lock(mutex_);
  uncommitted_.push_back(
      {step, publication.queued.attempt, publication.event, publication.queued.joined, os::monotonic_ns()});
  if (uncommitted_.size() <= kMaxUncommitted) return;
  const Uncommitted oldest = std::move(uncommitted_.front());
  uncommitted_.pop_front();
  fail_save_locked(
      oldest.event.ticket, oldest.step,
      Error(ErrorKind::busy,
            fmt::format("step {} was not committed: shards of other ranks are missing, and {} later steps are waiting",
                        oldest.step, kMaxUncommitted)));
}

void AgentRank::commit_complete_attempts() {
  auto store = open_store();
  if (!store) {
    set_last_error(store.error());
    return;
  }
  std::deque<Uncommitted> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting = uncommitted_;
  }
  for (const Uncommitted& shard : waiting) {
    auto outcome = no_throw(
        "committing", [&] { return Store::Impl::of(**store).commit(shard.step, job_.world_size, shard.attempt); });
    // An empty outcome: shards of other ranks are missing. invalid_argument: this call cannot commit the shard any
    // more; either it was committed before, or its step or attempt is too old. Other errors may be temporary.
    const bool is_missing = outcome && !*outcome;
    const bool is_patient = os::monotonic_ns() - shard.since_ns < kComeBackNs;
    const bool is_given_up =
        is_missing && job_.attempts.has_gone_on(shard.step, rank_, shard.attempt, shard.joined, !is_patient);
    const bool is_settled =
        outcome ? !is_missing || is_given_up : outcome.error().kind() == ErrorKind::invalid_argument;
    if (!outcome && !is_settled) {
      set_last_error(outcome.error());
      const std::lock_guard lock(mutex_);
      must_reopen_ = true;
    }
    if (!is_settled) continue;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(uncommitted_, [&](const Uncommitted& each) { return each.event.ticket == shard.event.ticket; });
    }
    if (is_given_up || (!outcome && !was_committed(shard))) {
      // A later step was committed without this one, or never will this one be: not all ranks saved it.
      std::optional<Error> other_job = is_given_up ? std::nullopt : other_job_error(**store, shard);
      const bool is_skip = is_given_up || (!other_job && !has_other_attempt(shard));
      Error error = is_skip     ? Error(ErrorKind::busy, "not all ranks saved it")
                    : other_job ? *std::move(other_job)
                                : std::move(outcome).error();
      const std::lock_guard lock(mutex_);
      fail_save_locked(shard.event.ticket, shard.step,
                       std::move(error).within(fmt::format("committing step {}", shard.step)), is_skip);
      continue;
    }
    ProgressEvent event = shard.event;
    if (outcome) event.base = outcome->checkpoint->base;
    job_.attempts.note_committed(shard.step, shard.attempt);  // before finish() can prune it
    finish(event, shard.step);
  }
}

// Whether this or another rank has committed the shard's attempt. A checkpoint that was pruned since may have left a
// retired record.
bool AgentRank::was_committed(const Uncommitted& shard) {
  if (job_.attempts.was_committed(shard.step, shard.attempt)) return true;
  const auto retired = store::read_commit_record(job_.files, store::RunLayout(job_.store_path), shard.step, true);
  return retired && retired->attempt == shard.attempt;
}

bool AgentRank::has_other_attempt(const Uncommitted& shard) const {
  const store::RunLayout layout(job_.store_path);
  const auto has = [&](bool retired) {
    const auto record = store::read_commit_record(job_.files, layout, shard.step, retired);
    return record || record.error().kind() != ErrorKind::not_found;
  };
  return has(false) || has(true);
}

std::optional<Error> AgentRank::other_job_error(const Store& store, const Uncommitted& shard) const {
  const auto steps = store.steps();
  if (!steps || steps->empty()) return std::nullopt;
  const bool is_there = std::ranges::binary_search(*steps, shard.step);
  const std::uint64_t step = is_there ? shard.step : steps->back();
  const auto record = store::read_commit_record(job_.files, store::RunLayout(job_.store_path), step);
  if (!record || job_.attempts.is_own(record->attempt)) return std::nullopt;
  return Error(
      ErrorKind::invalid_argument,
      fmt::format("{}: another job, or an earlier start of this one, has committed step {} (attempt '{}', this "
                  "is '{}'). Two jobs must not save to one store: give each its own path, or end one of them",
                  job_.store_path, step, record->attempt, shard.attempt));
}

void AgentRank::finish(const ProgressEvent& event, std::uint64_t step) {
  cache_->note_committed(step);
  {
    const std::lock_guard lock(mutex_);
    ++totals_.persisted;
    totals_.write_us += event.write_us;
    totals_.last_persisted_step = step;
    note_ended_locked(step, "persisted", nullptr);
    ProgressEvent told = event;
    told.stage = Stage::persisted;
    tell(std::move(told));
  }
  if (rank_ == 0) prune(step);
}

void AgentRank::prune(std::uint64_t step) {
  auto store = open_store();
  if (!store) return set_last_error(store.error());
  CheckpointInfo info;
  info.step = step;
  Store::Impl::of(**store).apply_retention(info, {.threads = job_.threads});
  if (!info.prune_error) return;
  set_last_error(*info.prune_error);
  const std::lock_guard lock(mutex_);
  must_reopen_ = true;
}

void AgentRank::remove_rotated() {
  std::set<std::uint64_t> removed;
  {
    const std::lock_guard lock(mutex_);
    removed = std::exchange(removed_, {});
  }
  if (removed.empty()) return;
  const Result<void> done = no_throw("removing", [&]() -> Result<void> {
    BITSNAP_ASSIGN(const std::shared_ptr<Store> store, open_store());
    BITSNAP_ASSIGN(std::vector<std::uint64_t> steps, store->steps());
    if (steps.empty()) return {};
    steps.pop_back();  // the newest stays
    std::erase_if(steps, [&](std::uint64_t step) { return !removed.contains(step); });
    if (steps.empty()) return {};
    return store->remove(steps, {.run = {.threads = job_.threads}}).map([](const PruneReport&) {});
  });
  if (done) return;
  set_last_error(done.error());
  const std::lock_guard lock(mutex_);
  must_reopen_ = true;
}

Result<std::shared_ptr<Store>> AgentRank::open_store() {
  const std::lock_guard store_lock(store_mutex_);
  StoreOptions options;
  {
    const std::lock_guard lock(mutex_);
    // A handle that is still in use may hold the store's lock, so that a second one could not open. It stays, and so
    // does `must_reopen_`, for a later call.
    if (store_ != nullptr && (!must_reopen_ || store_.use_count() > 1)) return store_;
    store_.reset();
    must_reopen_ = false;
    options = store_options(settings_, rank_, job_.world_size);
    options.prunes = options.prunes && !is_rotated_;
  }
  options.lock_wait_ms = kLockWaitMs;
  auto opened = store::open_store(job_.files, job_.store_path, options, cache_);
  if (!opened && opened.error().kind() == ErrorKind::busy) {
    return fail(ErrorKind::busy,
                fmt::format("{}; if that is the agent of another job, give each job a store of its own, or stop it",
                            opened.error().message()));
  }
  BITSNAP_ASSIGN(store_, std::move(opened));
  remember_settings(*store_);
  return store_;
}

void AgentRank::remember_settings(const Store& store) {
  const std::lock_guard lock(mutex_);
  remembered_ = store.settings();
}

CodingSettings AgentRank::memory_settings() {
  {
    // For settings that the trainer did not give, the store's apply. They are read once, by a reader, which takes no
    // lock, and not while the writer thread opens the store: saves for memory never wait for the store.
    const std::unique_lock store_lock(store_mutex_, std::try_to_lock);
    bool is_known = false;
    {
      const std::lock_guard lock(mutex_);
      is_known = remembered_.has_value();
    }
    if (store_lock && !is_known) {
      if (const auto store = store::open_store(job_.files, job_.store_path, {.access = StoreAccess::read}))
        remember_settings(**store);
    }
  }
  const std::lock_guard lock(mutex_);
  return merge_settings(settings_.coding, remembered_.value_or(CodingSettings()));
}

bool AgentRank::is_budget_given() const {
  const std::lock_guard lock(mutex_);
  return budget_bytes_ != 0;
}

}  // namespace bitsnap::engine
