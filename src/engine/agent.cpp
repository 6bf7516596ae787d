// The loop of the agent: connections, deaths of trainers, and how the agent ends. Threads: agent.hpp.
#include "engine/agent.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/try.hpp"
#include "engine/shared_text.hpp"
#include "exec/background.hpp"
#include "os/clock.hpp"
#include "os/memory.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {
namespace {

// Tokens of the poll set. A connection has an even token for its socket, and the next odd one for its process.
constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kWoken = 1;
constexpr std::uint64_t kSignals = 2;
constexpr std::uint64_t kFirstPeer = 8;

constexpr std::size_t kMaxConnections = 1024;
// Limit for connections that have not said hello: a trainer says hello at once.
constexpr std::size_t kMaxStrangers = 64;
// Limit for messages that wait to be sent on one connection; beyond it, the connection is closed.
constexpr std::size_t kMaxOutgoing = 4096;
// Messages of one trainer that are received in one go when all of them must count.
constexpr std::size_t kMaxWaiting = 4096;
// Messages of one connection, and new connections, that one turn handles, so that a flood delays nobody.
constexpr std::size_t kAtOnce = 32;
constexpr std::int64_t kTickMs = 50;
// How long an ending agent waits for shards of other ranks.
constexpr std::uint64_t kCommitNs = 5'000'000'000;
constexpr std::int64_t kLongMs = 60'000;

}  // namespace

Result<std::unique_ptr<Agent>> Agent::start(const AgentOptions& options, os::FileSystem& files) {
  BITSNAP_TRY(check_job_name(options.job));
  BITSNAP_ASSIGN(os::LocalListener listener, os::LocalListener::listen(socket_name(options.job)));
  BITSNAP_ASSIGN(os::EventSignal woken, os::EventSignal::create());
  return std::unique_ptr<Agent>(new Agent(options, files, std::move(listener), std::move(woken)));
}

Agent::Agent(const AgentOptions& options, os::FileSystem& files, os::LocalListener listener, os::EventSignal woken)
    : options_(options),
      files_(files),
      listener_(std::move(listener)),
      woken_(std::move(woken)),
      started_ns_(os::monotonic_ns()),
      last_token_(kFirstPeer),
      last_trainer_ns_(started_ns_),
      linger_ms_(options.hello_ms) {}

Agent::~Agent() {
  // The threads of the ranks call tell() and wake() until they end.
  ranks_.clear();
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
  waiting_.watch(listener_.descriptor(), kListener);
  waiting_.watch(woken_.descriptor(), kWoken);
  waiting_.watch(signals.descriptor(), kSignals);
  while (const std::optional<std::int64_t> left = is_ended_ ? std::nullopt : time_left()) {
    BITSNAP_ASSIGN(const std::vector<os::PollEvent> events, waiting_.wait(*left));
    for (const os::PollEvent& event : events) {
      switch (event.token) {
        case kListener: accept_some(); break;
        case kWoken: woken_.clear(); break;
        case kSignals:
          // The descriptor stays readable, so the loop stops watching it and reads signals.count() each turn.
          waiting_.forget(signals.descriptor());
          is_told_to_stop_ = true;
          break;
        default: serve(event.token, event);
      }
    }
    // The first signal lets the agent finish the staged saves; the second one ends it as soon as possible.
    is_told_to_abandon_ |= signals.count() > 1;
    stop_as_told();
    take_inbox();
    settle_persist();
    answer_lists();
  }
  // The socket closes when run() returns. The next trainer then finds no agent and starts another one.
  const os::LocalListener ending = std::move(listener_);
  take_inbox();
  for (const Request& stop : std::exchange(stops_, {})) reply(stop, MessageKind::ok, "{}");
  while (!connections_.empty()) close(connections_.begin()->first);
  return {};
}

std::optional<std::int64_t> Agent::time_left() {
  const std::uint64_t now = os::monotonic_ns();
  // An ending agent waits at most kCommitNs for missing shards. Otherwise uncommitted shards count as work only while a
  // trainer is connected, because only trainers can save the missing ones.
  const bool ignore_uncommitted =
      is_abandoning_ || (stopping_since_ns_ ? now - *stopping_since_ns_ > kCommitNs : !has_trainers());
  const bool is_busy = !is_idle(ignore_uncommitted);
  if (stopping_since_ns_) return is_busy ? std::optional(kTickMs) : std::nullopt;
  if (has_trainers() || is_busy) {
    last_trainer_ns_ = now;
    return lists_.empty() && persists_.empty() ? kLongMs : kTickMs;
  }
  const auto quiet_ms = static_cast<std::int64_t>((now - last_trainer_ns_) / 1'000'000);
  const auto left = static_cast<std::int64_t>(std::min(linger_ms_, kLongestWaitMs)) - quiet_ms;
  if (left <= 0) return std::nullopt;
  return std::min(left, kLongMs);
}

void Agent::stop_as_told() {
  if (is_told_to_stop_ && !stopping_since_ns_) {
    receive_from_trainers();
    stopping_since_ns_ = os::monotonic_ns();
  }
  if (is_told_to_abandon_ && !is_abandoning_) {
    is_abandoning_ = true;
    for (const auto& [number, rank] : ranks_) rank->abandon();
    if (!earlier_) return;
    for (const auto& [number, rank] : earlier_->ranks) rank->abandon();
  }
}

bool Agent::is_idle(bool ignore_uncommitted) const {
  if (persisting_) return false;
  return std::ranges::all_of(ranks_,
                             [&](const auto& rank) { return rank.second->queue().is_idle(ignore_uncommitted); });
}

bool Agent::has_trainers() const {
  return std::ranges::any_of(connections_, [](const auto& connection) { return connection.second->rank.has_value(); });
}

void Agent::accept_some() {
  for (std::size_t i = 0; i < kAtOnce; ++i) {
    auto accepted = listener_.accept(0);
    if (!accepted) {
      if (accepted.error().kind() == ErrorKind::busy) return;
      // The usual cause is that no descriptor is left. The new connection keeps waiting, so accepting again at once
      // would fail again.
      if (!close_oldest_stranger()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    // The superuser can connect, too.
    if (accepted->peer().user != os::user_id() || connections_.size() >= kMaxConnections) continue;
    const auto strangers =
        std::ranges::count_if(connections_, [](const auto& connection) { return !connection.second->rank; });
    if (static_cast<std::size_t>(strangers) >= kMaxStrangers) close_oldest_stranger();
    auto watch = os::ProcessWatch::open_peer(*accepted);
    if (!watch) continue;
    const std::uint64_t token = last_token_ += 2;
    auto connection = std::make_unique<Connection>(Connection{std::move(*accepted), std::move(*watch)});
    waiting_.watch(connection->socket.descriptor(), token);
    waiting_.watch(connection->watch.descriptor(), token + 1);
    connections_.emplace(token, std::move(connection));
  }
}

bool Agent::close_oldest_stranger() {
  const auto oldest = std::ranges::find_if(connections_, [&](const auto& each) {  // oldest first
    return !each.second->rank && std::ranges::find(stops_, each.first, &Request::connection) == stops_.end();
  });
  if (oldest == connections_.end()) return false;
  close(oldest->first);
  return true;
}

void Agent::watch_connection(std::uint64_t token, const Connection& connection) {
  waiting_.watch(connection.socket.descriptor(), token, !connection.outgoing.empty());
}

void Agent::serve(std::uint64_t token, const os::PollEvent& event) {
  const bool is_death = token % 2 == 1;
  const std::uint64_t number = is_death ? token - 1 : token;
  // Messages that a trainer sent before it died still count, so the loop receives them before it closes the connection.
  if (is_death || event.readable) receive_from(number, is_death ? kMaxWaiting : kAtOnce);
  if (!connections_.contains(number)) return;
  if (is_death) return close(number);
  Connection& connection = *connections_.at(number);
  if (event.writable) flush(connection);
  watch_connection(number, connection);
}

void Agent::receive_from(std::uint64_t token, std::size_t most) {
  for (std::size_t i = 0; i < most; ++i) {
    const auto found = connections_.find(token);
    if (found == connections_.end()) return;
    auto message = found->second->socket.receive(kMaxPacketBytes, 1, 0);
    if (!message && message.error().kind() == ErrorKind::busy) return;
    if (!message || !*message) return close(token);
    auto packet = parse_packet((*message)->bytes);
    if (!packet) {
      if (packet.error().kind() == ErrorKind::unsupported) {
        reply({token, packet_number((*message)->bytes)}, MessageKind::refused, serialize_body(packet.error()));
      }
      return close(token);
    }
    if ((*message)->descriptors.size() > most_descriptors(packet->kind)) return close(token);
    handle(token, *packet, std::move((*message)->descriptors));
  }
}

void Agent::receive_from_trainers(std::uint64_t but) {
  std::vector<std::uint64_t> trainers;
  for (const auto& [token, connection] : connections_) {
    if (token != but && connection->rank) trainers.push_back(token);
  }
  for (const std::uint64_t token : trainers) receive_from(token, kMaxWaiting);
}

void Agent::handle(std::uint64_t token, const Packet& packet, std::vector<os::Descriptor> descriptors) {
  Result<void> handled =
      packet.kind == MessageKind::hello ? on_hello(token, packet) : on_request(token, packet, descriptors);
  if (handled) return;
  // No trainer sends a corrupt message, so the connection is closed.
  const bool is_broken = handled.error().kind() == ErrorKind::corrupt;
  reply({token, packet.number}, MessageKind::refused, serialize_body(handled.error()));
  if (is_broken && connections_.contains(token)) close(token);
}

void Agent::close(std::uint64_t token) {
  const auto found = connections_.find(token);
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  waiting_.forget(connection->socket.descriptor());
  waiting_.forget(connection->watch.descriptor());
  if (connection->rank && job_ != nullptr) job_->attempts.note_death(*connection->rank);
  const auto is_its = [token](const Request& request) { return request.connection == token; };
  std::erase_if(lists_, is_its);
  std::erase_if(stops_, is_its);
  std::erase_if(persists_, is_its);
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
    for (const auto& [token, connection] : connections_) {
      // Events for an earlier trainer of the rank are dropped: the present one learned the state of the slots from
      // `welcome`.
      if (connection->rank != told.rank || connection->trainer != told.trainer) continue;
      reply({token, 0}, MessageKind::progress, serialize_body(told.event));
      break;
    }
  }
  for (Fetch& fetch : inbox.fetches) {
    if (const auto connection = connections_.find(fetch.connection); connection != connections_.end())
      --connection->second->fetching;
    auto descriptor = fetch.result.and_then([](const auto& found) { return found.memory.duplicate(); });
    if (!descriptor) {
      reply(fetch, MessageKind::refused, serialize_body(descriptor.error()));
    } else {
      reply(fetch, MessageKind::fetched, serialize_body(fetch.result->fetched), std::move(*descriptor));
    }
  }
}

bool Agent::is_ready(const WaitingList& list) const {
  const auto have_all = [&](SaveQueue::Reached least) {
    return std::ranges::all_of(list.taken, [&](const auto& taken) {
      const auto rank = ranks_.find(taken.first);
      return rank == ranks_.end() || rank->second->queue().reached(taken.second) >= least;
    });
  };
  if (!have_all(SaveQueue::Reached::encoded)) return false;
  // If all ranks have the newest step in memory and no rank has a later one, these saves add no later step to the
  // store. Otherwise a later checkpoint could be committed between the requests of two ranks.
  const StepList known = step_list(list.rank);
  const bool is_had = !known.steps.empty() && known.steps.back().everywhere;
  const auto is_newest = [&](const auto& rank) { return rank.second->is_newest(known.steps.back().step); };
  if (is_had && std::ranges::all_of(ranks_, is_newest)) return true;
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
  receive_from_trainers();
  for (WaitingList& list : lists_) {
    // A list that arrived while messages were received is counted in the next turn.
    if (std::ranges::find(asked, static_cast<const Request&>(list)) == asked.end()) continue;
    for (const auto& [rank, other] : ranks_) list.taken[rank] = other->queue().staged_count();
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
    reply_text(ready, MessageKind::steps, serialize_body(step_list(ready.rank)));
    // The reply may have closed the connection, which removes its lists.
    list = lists_.begin();
  }
}

void Agent::reply(const Request& request, MessageKind kind, std::string body,
                  std::optional<os::Descriptor> descriptor) {
  const auto& [token, number] = request;
  const auto found = connections_.find(token);
  if (found == connections_.end()) return;
  Connection& connection = *found->second;
  auto bytes = serialize_packet({kind, number, std::move(body)});
  if (!bytes) bytes = serialize_packet({MessageKind::refused, number, serialize_body(bytes.error())});
  if (!bytes || connection.outgoing.size() >= kMaxOutgoing) return close(token);
  connection.outgoing.push_back({std::move(*bytes), std::move(descriptor)});
  flush(connection);
  watch_connection(token, connection);
}

void Agent::reply_text(const Request& request, MessageKind kind, std::string_view text) {
  auto memory = share_text(text);
  if (!memory) return reply(request, MessageKind::refused, serialize_body(memory.error()));
  reply(request, kind, serialize_body(TextSize{text.size()}), std::move(*memory));
}

void Agent::flush(Connection& connection) {
  while (!connection.outgoing.empty() && !connection.is_deaf) {
    const Outgoing& next = connection.outgoing.front();
    const int descriptor = next.descriptor ? next.descriptor->get() : -1;
    const auto descriptors = next.descriptor ? std::span(&descriptor, 1) : std::span<const int>();
    const auto sent = connection.socket.send(next.bytes, descriptors, 0);
    if (!sent && sent.error().kind() == ErrorKind::busy) return;
    connection.outgoing.pop_front();
    if (sent) continue;
    // A dead trainer may have sent messages that are not received yet; its connection closes after the last of them. A
    // living trainer sees the end of the stream and connects again.
    connection.is_deaf = true;
    connection.socket.end_sending();
  }
  if (connection.is_deaf) connection.outgoing.clear();
}

}  // namespace bitsnap::engine

namespace bitsnap {

Result<AgentEnd> run_agent(const AgentOptions& options) {
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
