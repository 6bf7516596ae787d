// The writer thread: publishes encoded saves to the store, commits the checkpoints of several ranks, and prunes.
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "engine/agent_rank.hpp"
#include "store/store_impl.hpp"

namespace bitsnap::engine {
namespace {

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
    store_.note_stale();
    return fail_save(publication.queued, Error(published.error()).within(fmt::format("persisting step {}", step)));
  }
  if (is_in_store || job_.world_size == 1) return finish(publication.event, step);
  const auto oldest = queue_.add_uncommitted(
      {step, publication.queued.attempt, publication.event, publication.queued.joined, os::monotonic_ns()});
  if (!oldest) return;
  const std::lock_guard lock(mutex_);
  fail_save_locked(
      oldest->event.ticket, oldest->step,
      Error(ErrorKind::busy,
            fmt::format("step {} was not committed: shards of other ranks are missing, and {} later steps are waiting",
                        oldest->step, SaveQueue::kMaxUncommitted)));
}

void AgentRank::commit_complete_attempts() {
  const std::deque<Uncommitted> waiting = queue_.uncommitted();
  if (waiting.empty()) return;
  auto store = store_.open();
  if (!store) return totals_.set_last_error(store.error());
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
      totals_.set_last_error(outcome.error());
      store_.note_stale();
    }
    if (!is_settled) continue;
    queue_.drop_uncommitted(shard.event.ticket);
    // This or another rank may have committed it. A checkpoint that was pruned since may have left a retired record.
    const bool is_committed = !is_given_up && (outcome || job_.attempts.was_committed(shard.step, shard.attempt) ||
                                               store_.is_committed(shard.step, shard.attempt, true));
    if (!is_committed) {
      // A later step was committed without this one, or never will this one be: not all ranks saved it.
      std::optional<Error> error;
      if (!is_given_up) error = store_.other_attempt_error(**store, shard.step, shard.attempt, outcome.error());
      const bool is_skip = !error;
      if (is_skip) error = Error(ErrorKind::busy, "not all ranks saved it");
      const std::lock_guard lock(mutex_);
      fail_save_locked(shard.event.ticket, shard.step,
                       std::move(*error).within(fmt::format("committing step {}", shard.step)), is_skip);
      continue;
    }
    ProgressEvent event = shard.event;
    if (outcome) event.base = outcome->checkpoint->base;
    job_.attempts.note_committed(shard.step, shard.attempt);  // before finish() can prune it
    finish(event, shard.step);
  }
}

void AgentRank::finish(const ProgressEvent& event, std::uint64_t step) {
  cache_->note_committed(step);
  {
    const std::lock_guard lock(mutex_);
    totals_.add_persisted(step, event);
    ProgressEvent told = event;
    told.stage = Stage::persisted;
    tell(std::move(told));
  }
  if (rank_ != 0) return;
  if (const auto pruned = store_.prune(step); !pruned) totals_.set_last_error(pruned.error());
}

void AgentRank::remove_rotated() {
  const std::set<std::uint64_t> removed = queue_.take_removed();
  if (removed.empty()) return;
  if (const auto done = store_.remove(removed); !done) totals_.set_last_error(done.error());
}

}  // namespace bitsnap::engine
