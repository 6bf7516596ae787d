// Messages, whole and in order, between processes of one machine, with descriptors in them if need be.
//
// Listeners have names in the abstract namespace of the system: no file is left whatever happens, and a name is free
// again when its listener is gone. Anybody on the machine may connect, or listen under a name first: what counts is
// peer(). Containers with a network of their own do not see each other's names.
//
// The other end's death does not end a stream while a child that it forked has the descriptor: watch the process
// (ProcessWatch::open_peer). A forked child can use none of these objects, which say invalid_argument there. One thread
// may send on a connection while another receives; limits are in milliseconds, and 0 is for use with a PollSet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "os/clock.hpp"
#include "os/descriptor.hpp"

namespace bitsnap::os {

inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;
inline constexpr std::size_t kMaxMessageDescriptors = 64;
inline constexpr std::size_t kMaxListenerNameBytes = 100;

// Who made the other end, as the system knows it and not as he says; numbers as this process would name them, 0 or
// 65534 where it cannot.
struct PeerIdentity {
  std::int64_t process = 0;
  std::uint32_t user = 0;
  std::uint32_t group = 0;
};

struct LocalMessage {
  std::vector<std::byte> bytes;
  std::vector<Descriptor> descriptors;
};

class LocalConnection {
 public:
  // not_found if nobody listens, busy if the listener takes nobody within the time.
  [[nodiscard]] static Result<LocalConnection> connect(std::string_view name, std::int64_t timeout_ms);

  // Two ends of one connection, both of this process.
  [[nodiscard]] static Result<std::pair<LocalConnection, LocalConnection>> pair();

  // 1 to kMaxMessageBytes bytes, and copies of the descriptors, which stay the caller's. All or nothing is sent: busy
  // where the time was over first, io where the other end is gone.
  [[nodiscard]] Result<void> send(ConstByteSpan message, std::span<const int> descriptors,
                                  std::int64_t timeout_ms) const;

  // The next message; nothing at the end of the stream, when the other end is gone and all that it sent was received.
  // busy where the time was over first. A message beyond the limits is resource_exhausted: it is lost, with its
  // descriptors, and the next one is not.
  [[nodiscard]] Result<std::optional<LocalMessage>> receive(std::size_t max_bytes, std::size_t max_descriptors,
                                                            std::int64_t timeout_ms) const;

  // The other end finds the end of the stream behind what was sent. What it sends is received as before.
  void end_sending() const noexcept;

  [[nodiscard]] const PeerIdentity& peer() const noexcept { return peer_; }
  // Readable when there is a message, or the end.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  friend class LocalListener;

  LocalConnection(Descriptor descriptor, const PeerIdentity& peer) noexcept;
  [[nodiscard]] static Result<LocalConnection> adopt(Descriptor descriptor);
  [[nodiscard]] std::string peer_name() const { return "process " + std::to_string(peer_.process); }

  Descriptor descriptor_;
  PeerIdentity peer_;
  std::int64_t process_;
};

class LocalListener {
 public:
  // A name of 1 to kMaxListenerNameBytes bytes without NUL; busy if somebody has it.
  [[nodiscard]] static Result<LocalListener> listen(std::string_view name);

  // The next who connects; busy where the time was over first. Where this process has no descriptor left (io), whoever
  // waits stays waiting and the listener readable.
  [[nodiscard]] Result<LocalConnection> accept(std::int64_t timeout_ms) const;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // Readable when somebody waits to be accepted.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  LocalListener(Descriptor descriptor, std::string_view name);

  Descriptor descriptor_;
  std::string name_;
  std::int64_t process_;
};

}  // namespace bitsnap::os
