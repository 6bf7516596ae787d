// AgentConnections: the connections of an agent: accepting, receiving and sending packets, the processes at the other
// ends, and the limits that keep one connection from harming the others.
//
// The agent owns it and calls it on its loop thread. Messages are bounded, sending never waits, and a connection that
// does not read its messages is closed. A ConnectionHandler, the agent, gives the packets their meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "engine/messages.hpp"
#include "engine/packet.hpp"
#include "os/local_socket.hpp"
#include "os/poll_set.hpp"
#include "os/process_watch.hpp"

namespace bitsnap::engine {

struct AgentConnection {
  struct Outgoing {
    std::vector<std::byte> bytes;
    std::optional<os::Descriptor> descriptor;
  };

  os::LocalConnection socket;
  os::ProcessWatch watch;
  std::optional<std::uint32_t> rank = {};  // set by `hello`
  std::uint64_t trainer = 0;               // the number of the rank's trainer (AgentRank::renew)
  WriteSettings settings = {};
  std::deque<Outgoing> outgoing = {};
  bool is_waiting = false;   // its trainer waits for a slot
  bool is_stopping = false;  // it waits for the agent to stop
  std::size_t fetching = 0;  // fetches that the rank has not finished
  bool is_deaf = false;      // sending failed; messages received from it still count

  // A trainer that says no more: it has died, or hears nothing.
  [[nodiscard]] bool has_ended() const { return is_deaf || !watch.is_alive(); }
};

// Where an answer goes.
struct Request {
  std::uint64_t connection = 0;
  std::uint32_t number = 0;  // Packet::number

  friend bool operator==(const Request&, const Request&) = default;
};

class ConnectionHandler {
 public:
  ConnectionHandler() = default;
  ConnectionHandler(const ConnectionHandler&) = delete;
  ConnectionHandler& operator=(const ConnectionHandler&) = delete;
  virtual ~ConnectionHandler() = default;

  // The refusal is sent by the caller, which also closes the connection if it is corrupt: no trainer sends such a
  // message.
  [[nodiscard]] virtual Result<void> handle(std::uint64_t connection, const Packet& packet,
                                            std::vector<os::Descriptor>& descriptors) = 0;
  // The connection is closed, and no more known.
  virtual void on_closed(std::uint64_t token, const AgentConnection& connection) = 0;
};

class AgentConnections {
 public:
  // By token, oldest first.
  using All = std::map<std::uint64_t, std::unique_ptr<AgentConnection>>;

  // Tokens below this one are for other descriptors of the poll set. A connection has an even token for its socket, and
  // the next odd one for its process.
  static constexpr std::uint64_t kFirstToken = 8;
  static constexpr std::uint64_t kListener = 0;

  // `handler` outlives this object.
  AgentConnections(os::LocalListener listener, ConnectionHandler& handler);

  // For the agent's other descriptors, too.
  [[nodiscard]] os::PollSet& waiting() noexcept { return waiting_; }
  // Handles an event of the listener or of a connection.
  void serve(const os::PollEvent& event);
  // Receives the pending messages of all trainers except the one of connection `but`.
  void receive_from_trainers(std::uint64_t but = 0);
  // The next trainer finds no agent and starts another one, as soon as the listener that this returns is gone.
  [[nodiscard]] os::LocalListener end_listening() { return std::move(listener_); }

  [[nodiscard]] const All& all() const noexcept { return all_; }
  // nullptr: it is closed.
  [[nodiscard]] AgentConnection* find(std::uint64_t token) const;
  [[nodiscard]] bool has_trainers() const;
  void close(std::uint64_t token);
  // Closes those of trainers that have died, or hung up, or hear nothing any more, and have not been served yet, after
  // receiving what they said before.
  void close_ended(std::uint64_t but);

  // Nothing of these waits. The connection is closed if too many messages wait to be sent.
  void reply(const Request& request, MessageKind kind, std::string body,
             std::optional<os::Descriptor> descriptor = std::nullopt);
  void refuse(const Request& request, const Error& error) {
    reply(request, MessageKind::refused, serialize_body(error));
  }
  // Sends a text of any length, in shared memory.
  void reply_text(const Request& request, MessageKind kind, std::string_view text);

 private:
  void accept_some();
  // Closes the oldest connection that has not said hello and waits for no `stop`; false if there is none.
  bool close_oldest_stranger();
  void receive_from(std::uint64_t token, std::size_t most);
  // Sends as much as possible without waiting. If sending fails, marks the connection as deaf and ends the stream, so
  // that the trainer connects again.
  void flush(std::uint64_t token, AgentConnection& connection);

  os::LocalListener listener_;
  ConnectionHandler& handler_;
  os::PollSet waiting_;
  std::uint64_t last_token_ = kFirstToken;
  All all_;
};

}  // namespace bitsnap::engine
