#include "engine/agent_connections.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "engine/shared_text.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {
namespace {

constexpr std::size_t kMaxConnections = 1024;
// Limit for connections that have not said hello: a trainer says hello at once.
constexpr std::size_t kMaxStrangers = 64;
// Limit for messages that wait to be sent on one connection; beyond it, the connection is closed.
constexpr std::size_t kMaxOutgoing = 4096;
// Messages of one trainer that are received in one go when all of them must count.
constexpr std::size_t kMaxWaiting = 4096;
// Messages of one connection, and new connections, that one turn handles, so that a flood delays nobody.
constexpr std::size_t kAtOnce = 32;

}  // namespace

AgentConnections::AgentConnections(os::LocalListener listener, ConnectionHandler& handler)
    : listener_(std::move(listener)), handler_(handler) {
  waiting_.watch(listener_.descriptor(), kListener);
}

AgentConnection* AgentConnections::find(std::uint64_t token) const {
  const auto found = all_.find(token);
  return found == all_.end() ? nullptr : found->second.get();
}

bool AgentConnections::has_trainers() const {
  return std::ranges::any_of(all_, [](const auto& each) { return each.second->rank.has_value(); });
}

void AgentConnections::accept_some() {
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
    if (accepted->peer().user != os::user_id() || all_.size() >= kMaxConnections) continue;
    const auto strangers = std::ranges::count_if(all_, [](const auto& each) { return !each.second->rank; });
    if (static_cast<std::size_t>(strangers) >= kMaxStrangers) close_oldest_stranger();
    auto watch = os::ProcessWatch::open_peer(*accepted);
    if (!watch) continue;
    const std::uint64_t token = last_token_ += 2;
    auto connection = std::make_unique<AgentConnection>(AgentConnection{std::move(*accepted), std::move(*watch)});
    waiting_.watch(connection->socket.descriptor(), token);
    waiting_.watch(connection->watch.descriptor(), token + 1);
    all_.emplace(token, std::move(connection));
  }
}

bool AgentConnections::close_oldest_stranger() {
  const auto oldest =
      std::ranges::find_if(all_, [](const auto& each) { return !each.second->rank && !each.second->is_stopping; });
  if (oldest == all_.end()) return false;
  close(oldest->first);
  return true;
}

void AgentConnections::serve(const os::PollEvent& event) {
  if (event.token == kListener) return accept_some();
  const bool is_death = event.token % 2 == 1;
  const std::uint64_t token = is_death ? event.token - 1 : event.token;
  // Messages that a trainer sent before it died still count, so they are received before the connection is closed.
  if (is_death || event.readable) receive_from(token, is_death ? kMaxWaiting : kAtOnce);
  if (is_death) return close(token);
  if (AgentConnection* const connection = find(token); connection != nullptr && event.writable) {
    flush(token, *connection);
  }
}

void AgentConnections::receive_from(std::uint64_t token, std::size_t most) {
  for (std::size_t i = 0; i < most; ++i) {
    AgentConnection* const connection = find(token);
    if (connection == nullptr) return;
    auto message = connection->socket.receive(kMaxPacketBytes, 1, 0);
    if (!message && message.error().kind() == ErrorKind::busy) return;
    if (!message || !*message) return close(token);
    auto packet = parse_packet((*message)->bytes);
    if (!packet) {
      if (packet.error().kind() == ErrorKind::unsupported) {
        refuse({token, packet_number((*message)->bytes)}, packet.error());
      }
      return close(token);
    }
    if ((*message)->descriptors.size() > most_descriptors(packet->kind)) return close(token);
    const Result<void> handled = handler_.handle(token, *packet, (*message)->descriptors);
    if (handled) continue;
    refuse({token, packet->number}, handled.error());
    if (handled.error().kind() == ErrorKind::corrupt) return close(token);
  }
}

void AgentConnections::receive_from_trainers(std::uint64_t but) {
  std::vector<std::uint64_t> trainers;
  for (const auto& [token, connection] : all_) {
    if (token != but && connection->rank) trainers.push_back(token);
  }
  for (const std::uint64_t token : trainers) receive_from(token, kMaxWaiting);
}

void AgentConnections::close_ended(std::uint64_t but) {
  // What they said before they died is there from then on.
  std::vector<std::uint64_t> ended;
  for (const auto& [token, connection] : all_) {
    if (token != but && connection->rank && connection->has_ended()) ended.push_back(token);
  }
  receive_from_trainers(but);
  for (const std::uint64_t token : ended) close(token);
}

void AgentConnections::close(std::uint64_t token) {
  const auto found = all_.find(token);
  if (found == all_.end()) return;
  const std::unique_ptr<AgentConnection> connection = std::move(found->second);
  all_.erase(found);
  waiting_.forget(connection->socket.descriptor());
  waiting_.forget(connection->watch.descriptor());
  handler_.on_closed(token, *connection);
}

void AgentConnections::reply(const Request& request, MessageKind kind, std::string body,
                             std::optional<os::Descriptor> descriptor) {
  const auto& [token, number] = request;
  AgentConnection* const connection = find(token);
  if (connection == nullptr) return;
  auto bytes = serialize_packet({kind, number, std::move(body)});
  if (!bytes) bytes = serialize_packet({MessageKind::refused, number, serialize_body(bytes.error())});
  if (!bytes || connection->outgoing.size() >= kMaxOutgoing) return close(token);
  connection->outgoing.push_back({std::move(*bytes), std::move(descriptor)});
  flush(token, *connection);
}

void AgentConnections::reply_text(const Request& request, MessageKind kind, std::string_view text) {
  auto memory = share_text(text);
  if (!memory) return refuse(request, memory.error());
  reply(request, kind, serialize_body(TextSize{text.size()}), std::move(*memory));
}

void AgentConnections::flush(std::uint64_t token, AgentConnection& connection) {
  while (!connection.outgoing.empty() && !connection.is_deaf) {
    const AgentConnection::Outgoing& next = connection.outgoing.front();
    const int descriptor = next.descriptor ? next.descriptor->get() : -1;
    const auto descriptors = next.descriptor ? std::span(&descriptor, 1) : std::span<const int>();
    const auto sent = connection.socket.send(next.bytes, descriptors, 0);
    if (!sent && sent.error().kind() == ErrorKind::busy) break;
    connection.outgoing.pop_front();
    if (sent) continue;
    // A dead trainer may have sent messages that are not received yet; its connection closes after the last of them. A
    // living trainer sees the end of the stream and connects again.
    connection.is_deaf = true;
    connection.socket.end_sending();
  }
  if (connection.is_deaf) connection.outgoing.clear();
  waiting_.watch(connection.socket.descriptor(), token, !connection.outgoing.empty());
}

}  // namespace bitsnap::engine
