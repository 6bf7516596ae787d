// The memory of a job that goes on with another world size: its states stay until the new trainers have asked for what
// they need. Threads: agent.hpp.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "engine/agent.hpp"
#include "os/clock.hpp"

namespace bitsnap::engine {
namespace {

// How long shards that this agent could commit alone may wait, for example for the lock of the store.
constexpr std::uint64_t kOwnCommitNs = 5'000'000'000;

}  // namespace

void Agent::begin_other_job(std::uint32_t world_size) {
  take_inbox();  // nobody hears what is told of the trainers that are gone
  const bool has_states =
      std::ranges::any_of(ranks_, [](const auto& rank) { return !rank.second->memory_attempts().empty(); });
  if (has_states) {
    drop_earlier();
    for (const auto& [number, rank] : ranks_) {
      rank->retire();
      job_->attempts.note_hello(number);  // a shard of a kept state does not fail because other trainers have left
    }
    earlier_ = std::make_unique<EarlierJob>(EarlierJob{*std::move(first_), std::move(job_), std::move(ranks_)});
  }
  ranks_.clear();
  job_.reset();
  first_.reset();
  // A job that saved nothing has come in between.
  if (has_states || !earlier_ || earlier_->first.world_size != world_size) return;
  first_ = std::move(earlier_->first);
  job_ = std::move(earlier_->job);
  ranks_ = std::move(earlier_->ranks);
  earlier_.reset();
}

std::vector<MemoryStep> Agent::earlier_steps() const {
  if (!earlier_) return dropped_ ? std::vector{*dropped_} : std::vector<MemoryStep>();
  std::map<std::pair<std::uint64_t, std::string>, std::vector<std::uint32_t>> held;
  for (const auto& [number, rank] : earlier_->ranks) {
    for (const auto& each : rank->memory_attempts()) held[each].push_back(number);
  }
  std::vector<MemoryStep> steps;
  for (auto& [kept, ranks] : held) {
    steps.push_back({.step = kept.first,
                     .attempt = kept.second,
                     .earlier_ranks = earlier_->first.world_size,
                     .held_ranks = std::move(ranks)});
  }
  return steps;
}

void Agent::drop_earlier() {
  if (!earlier_ || earlier_->persisting) return;
  const std::vector<MemoryStep> steps = earlier_steps();
  if (!steps.empty() && (!dropped_ || dropped_->step < steps.back().step)) {
    dropped_ = steps.back();
    dropped_->held_ranks.clear();
  }
  earlier_.reset();
}

Result<void> Agent::on_persist(const Request& asked, const PersistRequest& request) {
  if (stopping_since_ns_) return ending_error();
  const auto is_it = [&](const MemoryStep& each) {
    return each.step == request.step && each.attempt == request.attempt && !each.held_ranks.empty();
  };
  if (std::ranges::none_of(earlier_steps(), is_it)) {
    return fail(ErrorKind::not_found,
                fmt::format("the memory of the agent has no step {} of an earlier world size", request.step));
  }
  std::optional<PersistRequest>& present = earlier_->persisting;
  if (present && (present->step != request.step || present->attempt != request.attempt)) {
    return fail(ErrorKind::busy, fmt::format("the agent is storing step {}", present->step));
  }
  persists_.push_back(asked);
  if (present) return {};
  present = request;
  earlier_->since_ns = os::monotonic_ns();
  earlier_->error.reset();
  for (const auto& [number, rank] : earlier_->ranks) {
    if (std::ranges::binary_search(rank->memory_attempts(), std::pair(request.step, request.attempt)))
      rank->persist(request);
  }
  return {};
}

void Agent::settle_earlier() {
  if (!earlier_ || !earlier_->persisting) return;
  const auto all_ranks = [this](const auto& is_true) {
    return std::ranges::all_of(earlier_->ranks, [&](const auto& rank) { return is_true(*rank.second); });
  };
  if (!all_ranks([](const AgentRank& rank) { return rank.is_idle(true); })) earlier_->since_ns = os::monotonic_ns();
  if (!all_ranks([](const AgentRank& rank) { return rank.is_settled(); })) return;
  const bool has_all = earlier_->ranks.size() == earlier_->first.world_size;
  const PersistRequest& present = *earlier_->persisting;
  const bool is_committed = all_ranks([&](const AgentRank& rank) { return !rank.is_uncommitted(present); });
  const bool is_patient = os::monotonic_ns() - earlier_->since_ns < kOwnCommitNs;
  if (has_all && !is_committed && !earlier_->error && is_patient) return;
  take_inbox();  // what the ranks told before they had settled
  const std::uint64_t step = present.step;
  earlier_->persisting.reset();
  std::optional<Error> error = earlier_->error;
  if (!error && has_all && !is_committed)
    error = Error(ErrorKind::busy, fmt::format("step {} was not committed", step));
  for (const Request& asked : std::exchange(persists_, {})) {
    error ? reply(asked, MessageKind::refused, serialize_body(*error)) : reply(asked, MessageKind::ok, "{}");
  }
  // With other agents, only the trainers know whether all shards are there.
  if (!error && has_all && all_ranks([step](const AgentRank& rank) { return rank.is_newest(step); })) drop_earlier();
}

}  // namespace bitsnap::engine
