// The loop of the agent: what it waits for, and how it ends. Threads: agent.hpp.
#include "engine/agent.hpp"

#include <algorithm>

#include "base/try.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"
#include "os/memory.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {
namespace {

// Tokens of the poll set, beside those of the connections.
constexpr std::uint64_t kWoken = 1;
constexpr std::uint64_t kSignals = 2;

constexpr std::int64_t kTickMs = 50;
// How long an ending agent waits for shards of other ranks.
constexpr std::uint64_t kCommitNs = 5'000'000'000;
constexpr std::int64_t kLongMs = 60'000;

}  // namespace

Result<std::unique_ptr<Agent>> Agent::start(const RunAgentOptions& options, os::FileSystem& files) {
  BITSNAP_TRY(check_job_name(options.job));
  BITSNAP_ASSIGN(os::LocalListener listener, os::LocalListener::listen(socket_name(options.job)));
  BITSNAP_ASSIGN(os::EventSignal woken, os::EventSignal::create());
  return std::unique_ptr<Agent>(new Agent(options, files, std::move(listener), std::move(woken)));
}

Agent::Agent(const RunAgentOptions& options, os::FileSystem& files, os::LocalListener listener, os::EventSignal woken)
    : options_(options),
      files_(files),
      woken_(std::move(woken)),
      started_ns_(os::monotonic_ns()),
      connections_(std::move(listener), *this),
      last_trainer_ns_(started_ns_),
      linger_ms_(options.hello_ms) {}

Agent::~Agent() {
  // The threads of the ranks call tell() and wake() until they end.
  present_.reset();
  earlier_.reset();
}

void Agent::tell(std::uint32_t rank, std::uint64_t trainer, ProgressEvent event) {
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.events.push_back({rank, trainer, std::move(event)});
  }
  woken_.raise();
}

void Agent::wake() { woken_.raise(); }

void Agent::end() noexcept {
  is_ended_.store(true);
  woken_.raise();
}

Result<void> Agent::run() {
  BITSNAP_ASSIGN(const os::SignalWatch signals, os::SignalWatch::start());
  os::PollSet& waiting = connections_.waiting();
  waiting.watch(woken_.descriptor(), kWoken);
  waiting.watch(signals.descriptor(), kSignals);
  while (const std::optional<std::int64_t> left = is_ended_ ? std::nullopt : time_left()) {
    BITSNAP_ASSIGN(const std::vector<os::PollEvent> events, waiting.wait(*left));
    for (const os::PollEvent& event : events) {
      switch (event.token) {
        case kWoken: woken_.clear(); break;
        case kSignals:
          // The descriptor stays readable, so the loop stops watching it and reads signals.count() each turn.
          waiting.forget(signals.descriptor());
          ending_.is_told_to_stop = true;
          break;
        default: connections_.serve(event);
      }
    }
    // The first signal lets the agent finish the staged saves; the second one ends it as soon as possible.
    ending_.is_told_to_abandon |= signals.count() > 1;
    stop_as_told();
    take_inbox();
    settle_persist();
    answer_lists();
  }
  // The socket closes when run() returns. The next trainer then finds no agent and starts another one.
  const os::LocalListener listener = connections_.end_listening();
  take_inbox();
  for (const Request& stop : std::exchange(ending_.asked, {})) connections_.reply(stop, MessageKind::ok, "{}");
  while (!connections_.all().empty()) connections_.close(connections_.all().begin()->first);
  return {};
}

std::optional<std::int64_t> Agent::time_left() {
  const std::uint64_t now = os::monotonic_ns();
  // An ending agent waits at most kCommitNs for missing shards. Otherwise uncommitted shards count as work only while a
  // trainer is connected, because only trainers can save the missing ones.
  const bool ignore_uncommitted =
      ending_.is_abandoning || (ending_.since_ns ? now - *ending_.since_ns > kCommitNs : !connections_.has_trainers());
  const bool is_busy = !is_idle(ignore_uncommitted);
  if (ending_.since_ns) return is_busy ? std::optional(kTickMs) : std::nullopt;
  if (connections_.has_trainers() || is_busy) {
    last_trainer_ns_ = now;
    return lists_.empty() && !persisting_ ? kLongMs : kTickMs;
  }
  const auto quiet_ms = static_cast<std::int64_t>((now - last_trainer_ns_) / 1'000'000);
  const auto left = static_cast<std::int64_t>(std::min(linger_ms_, kLongestWaitMs)) - quiet_ms;
  if (left <= 0) return std::nullopt;
  return std::min(left, kLongMs);
}

void Agent::stop_as_told() {
  if (ending_.is_told_to_stop && !ending_.since_ns) {
    connections_.receive_from_trainers();
    ending_.since_ns = os::monotonic_ns();
  }
  if (ending_.is_told_to_abandon && !ending_.is_abandoning) {
    ending_.is_abandoning = true;
    for (const auto* const served : {&present_, &earlier_}) {
      if (!*served) continue;
      for (const auto& [number, rank] : (*served)->ranks) rank->abandon();
    }
  }
}

bool Agent::is_idle(bool ignore_uncommitted) const {
  if (persisting_) return false;
  return !present_ || std::ranges::all_of(present_->ranks, [&](const auto& rank) {
    return rank.second->queue().is_idle(ignore_uncommitted);
  });
}

void Agent::on_closed(std::uint64_t token, const AgentConnection& connection) {
  if (connection.rank && present_) present_->job->attempts.note_death(*connection.rank);
  const auto is_its = [token](const Request& request) { return request.connection == token; };
  std::erase_if(lists_, is_its);
  std::erase_if(ending_.asked, is_its);
  if (persisting_) std::erase_if(persisting_->asked, is_its);
  set_urgency();
}

void Agent::take_inbox() {
  Inbox inbox;
  {
    const std::lock_guard lock(inbox_mutex_);
    std::swap(inbox, inbox_);
  }
  for (const Told& told : inbox.events) {
    if (persisting_ && told.event.error && told.event.ticket == kept_ticket(persisting_->request.step))
      persisting_->error = told.event.error;
    for (const auto& [token, connection] : connections_.all()) {
      // Events for an earlier trainer of the rank are dropped: the present one learned the state of the slots from
      // `welcome`.
      if (connection->rank != told.rank || connection->trainer != told.trainer) continue;
      connections_.reply({token, 0}, MessageKind::progress, serialize_body(told.event));
      break;
    }
  }
  for (Fetch& fetch : inbox.fetches) {
    if (AgentConnection* const connection = connections_.find(fetch.connection)) --connection->fetching;
    auto descriptor = fetch.result.and_then([](const auto& found) { return found.memory.duplicate(); });
    if (!descriptor) {
      connections_.refuse(fetch, descriptor.error());
    } else {
      connections_.reply(fetch, MessageKind::fetched, serialize_body(fetch.result->fetched), std::move(*descriptor));
    }
  }
}

bool Agent::is_ready(const WaitingList& list) const {
  const auto have_all = [&](SaveQueue::Reached least) {
    return std::ranges::all_of(list.taken, [&](const auto& taken) {
      const auto rank = present_->ranks.find(taken.first);
      return rank == present_->ranks.end() || rank->second->queue().reached(taken.second) >= least;
    });
  };
  if (!have_all(SaveQueue::Reached::encoded)) return false;
  // If all ranks have the newest step in memory and no rank has a later one, these saves add no later step to the
  // store. Otherwise a later checkpoint could be committed between the requests of two ranks.
  const StepList known = step_list(list.rank);
  const bool is_had = !known.steps.empty() && known.steps.back().everywhere;
  const auto is_newest = [&](const auto& rank) { return rank.second->is_newest(known.steps.back().step); };
  if (is_had && std::ranges::all_of(present_->ranks, is_newest)) return true;
  return have_all(SaveQueue::Reached::settled);
}

// Ranks that send `list` one after another must get the same steps. A list therefore counts every save that a trainer
// handed over before, even if the agent has not received the message yet.
void Agent::count_staged() {
  std::vector<Request> asked;
  for (const WaitingList& list : lists_) {
    if (!list.is_counted) asked.push_back(list);
  }
  if (asked.empty()) return;
  connections_.receive_from_trainers();
  for (WaitingList& list : lists_) {
    // A list that arrived while messages were received is counted in the next turn.
    if (std::ranges::find(asked, static_cast<const Request&>(list)) == asked.end()) continue;
    for (const auto& [rank, other] : present_->ranks) list.taken[rank] = other->queue().staged_count();
    list.is_counted = true;
  }
}

void Agent::answer_lists() {
  count_staged();
  const std::uint64_t now = os::monotonic_ns();
  for (auto list = lists_.begin(); list != lists_.end();) {
    if (!list->is_counted || (now < list->deadline_ns && !is_ready(*list))) {
      ++list;
      continue;
    }
    const WaitingList ready = *list;
    lists_.erase(list);
    connections_.reply_text(ready, MessageKind::steps, serialize_body(step_list(ready.rank)));
    // The reply may have closed the connection, which removes its lists.
    list = lists_.begin();
  }
}

}  // namespace bitsnap::engine

namespace bitsnap {

Result<AgentEnd> run_agent(const RunAgentOptions& options) {
  os::share_one_heap();  // before the first thread
  auto agent = engine::Agent::start(options, os::real_file_system());
  if (!agent) {
    if (agent.error().kind() == ErrorKind::busy) return AgentEnd::not_needed;
    return tl::unexpected(std::move(agent).error());
  }
  // Without memory, a training loses what the agent holds rather than its life.
  static_cast<void>(os::offer_to_end_first());
  if (options.lower_priority) {
    // The agent also works without what the system refuses. The threads that serve trainers and write keep the priority
    // of the trainer for CPUs, as they need little time, and a trainer may wait for them.
    exec::work_in_background(engine::kNicer);
    static_cast<void>(os::lower_io_priority());
    static_cast<void>(os::set_session_niceness(engine::kNicer));
  }
  BITSNAP_TRY((*agent)->run());
  return AgentEnd::done;
}

}  // namespace bitsnap
