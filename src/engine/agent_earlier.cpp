// Steps that only memory has and that trainers cannot restore from there. The memory of a job that goes on with another
// world size stays until the new trainers have asked for what they need. Threads: agent.hpp.
#include <algorithm>
#include <map>
#include <set>
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
      std::ranges::any_of(present_->ranks, [](const auto& rank) { return !rank.second->memory_attempts().empty(); });
  if (has_states) {
    drop_earlier();
    for (const auto& [number, rank] : present_->ranks) {
      rank->retire();
      present_->job->attempts.note_hello(number);  // a shard of a kept state does not fail because trainers have left
    }
    earlier_ = std::exchange(present_, std::nullopt);
  }
  present_.reset();
  // A job that saved nothing has come in between.
  if (!has_states && earlier_ && earlier_->first.world_size == world_size) {
    present_ = std::exchange(earlier_, std::nullopt);
  }
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

std::optional<EarlierReport> Agent::report_earlier() const {
  if (!earlier_) return std::nullopt;
  EarlierReport report{.world_size = earlier_->first.world_size, .memory_steps = {}};
  std::set<std::uint64_t> steps;
  for (const auto& [number, rank] : earlier_->ranks) {
    const RankReport each = rank->report();
    report.arena_bytes += each.arena_bytes;
    report.memory_bytes += each.memory_bytes;
    steps.insert(each.memory_steps.begin(), each.memory_steps.end());
  }
  report.memory_steps.assign(steps.begin(), steps.end());
  return report;
}

void Agent::drop_earlier() {
  if (!earlier_ || (persisting_ && persisting_->is_earlier)) return;
  const std::vector<MemoryStep> steps = earlier_steps();
  if (!steps.empty() && (!dropped_ || dropped_->step < steps.back().step)) {
    dropped_ = steps.back();
    dropped_->held_ranks.clear();
  }
  earlier_.reset();
}

Result<void> Agent::on_persist(const Request& asked, const PersistRequest& request) {
  if (ending_.since_ns) return ending_error();
  const auto has = [&](const auto& rank) {
    return std::ranges::binary_search(rank.second->memory_attempts(), std::pair(request.step, request.attempt));
  };
  const bool is_earlier = std::ranges::none_of(present_->ranks, has);
  if (is_earlier && (!earlier_ || std::ranges::none_of(earlier_->ranks, has))) {
    return fail(ErrorKind::not_found,
                fmt::format("the memory of the agent has no step {} of attempt '{}'", request.step, request.attempt));
  }
  if (persisting_) {
    const PersistRequest& present = persisting_->request;
    if (present.step != request.step || present.attempt != request.attempt)
      return fail(ErrorKind::busy, fmt::format("the agent is storing step {}", present.step));
  }
  if (persisting_) {
    persisting_->asked.push_back(asked);
    return {};
  }
  persisting_ =
      Persisting{.request = request, .is_earlier = is_earlier, .since_ns = os::monotonic_ns(), .asked = {asked}};
  for (const auto& each : (is_earlier ? earlier_ : present_)->ranks) {
    if (has(each)) each.second->persist(request);
  }
  return {};
}

void Agent::settle_persist() {
  if (!persisting_) return;
  const ServedJob& served = *(persisting_->is_earlier ? earlier_ : present_);
  const auto& ranks = served.ranks;
  const auto all_ranks = [&ranks](const auto& is_true) {
    return std::ranges::all_of(ranks, [&](const auto& rank) { return is_true(*rank.second); });
  };
  if (!all_ranks([](const AgentRank& rank) { return rank.queue().is_idle(true); }))
    persisting_->since_ns = os::monotonic_ns();
  if (!all_ranks([](const AgentRank& rank) { return rank.queue().is_settled(); })) return;
  const bool has_all = ranks.size() == served.first.world_size;
  const bool is_committed =
      all_ranks([&](const AgentRank& rank) { return !rank.queue().is_uncommitted(persisting_->request); });
  const bool is_patient = os::monotonic_ns() - persisting_->since_ns < kOwnCommitNs;
  if (has_all && !is_committed && !persisting_->error && is_patient) return;
  take_inbox();  // what the ranks told before they had settled
  const Persisting ended = *std::exchange(persisting_, std::nullopt);
  const std::uint64_t step = ended.request.step;
  std::optional<Error> error = ended.error;
  if (!error && has_all && !is_committed)
    error = Error(ErrorKind::busy, fmt::format("step {} was not committed", step));
  for (const Request& asked : ended.asked) {
    error ? connections_.refuse(asked, *error) : connections_.reply(asked, MessageKind::ok, "{}");
  }
  // With other agents, only the trainers know whether all shards are there.
  const bool is_over = !error && has_all && ended.is_earlier;
  if (is_over && all_ranks([step](const AgentRank& rank) { return rank.is_newest(step); })) drop_earlier();
}

}  // namespace bitsnap::engine
