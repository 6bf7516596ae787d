// Messages between processes of one machine: each arrives whole and in order, and may carry descriptors.
//
// A listener's name is a file in a directory of its user, in which no other user can create names
// (private_directory.hpp). The file of a listener that was killed stays until the next one takes the name. The
// superuser may connect, too, so check peer(). Containers that do not share these directories do not see each other's
// names.
//
// When the process at the other end dies, the stream does not end while a child that it forked holds the descriptor;
// watch the process instead (ProcessWatch::open_peer). In a forked child all these objects fail with invalid_argument.
// One thread may send on a connection while another receives. Timeouts are in milliseconds; use 0 with a PollSet.
#pragma once

#include <cstdint>
#include <memory>
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
inline constexpr std::size_t kMaxListenerNameBytes = 64;

// The process that made the other end, as the system reports it. The numbers are those of this process's namespace; 0
// or 65534 if there is none.
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
  // Fails with not_found without a listener, with busy if the listener does not accept within the time.
  [[nodiscard]] static Result<LocalConnection> connect(std::string_view name, std::int64_t timeout_ms);

  // Two connected ends, both in this process.
  [[nodiscard]] static Result<std::pair<LocalConnection, LocalConnection>> pair();

  // Sends 1 to kMaxMessageBytes bytes and duplicates of the descriptors, all or nothing. Fails with busy if the time is
  // over first, with io if the other end is gone.
  [[nodiscard]] Result<void> send(ConstByteSpan message, std::span<const int> descriptors,
                                  std::int64_t timeout_ms) const;

  // The next message; nullopt at the end of the stream, when the other end is gone and everything it sent was received.
  // Fails with busy if the time is over first, and with resource_exhausted for a message beyond the limits, which is
  // dropped with its descriptors; later messages are not affected.
  [[nodiscard]] Result<std::optional<LocalMessage>> receive(std::size_t max_bytes, std::size_t max_descriptors,
                                                            std::int64_t timeout_ms) const;

  // Ends the stream to the other end, after what was sent. Receiving works as before.
  void end_sending() const noexcept;

  [[nodiscard]] const PeerIdentity& peer() const noexcept { return peer_; }
  // Readable when a message or the end of the stream has arrived.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  friend class LocalListener;

  LocalConnection(Descriptor descriptor, const PeerIdentity& peer) noexcept;
  [[nodiscard]] static Result<LocalConnection> adopt(Descriptor descriptor);
  [[nodiscard]] static Result<LocalConnection> connect_to_path(const std::string& path, std::int64_t timeout_ms);
  [[nodiscard]] std::string peer_name() const { return "process " + std::to_string(peer_.process); }

  Descriptor descriptor_;
  PeerIdentity peer_;
  std::int64_t process_;
};

class LocalListener {
 public:
  // `name`: 1 to kMaxListenerNameBytes bytes without NUL and slash. busy if another listener has it.
  [[nodiscard]] static Result<LocalListener> listen(std::string_view name);

  LocalListener(LocalListener&&) noexcept;
  LocalListener& operator=(LocalListener&&) = delete;
  ~LocalListener();

  // The next connection; busy if the time is over first. If this process has no descriptor left (io), the connecting
  // process keeps waiting and the listener stays readable.
  [[nodiscard]] Result<LocalConnection> accept(std::int64_t timeout_ms) const;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // Readable when a connection waits to be accepted.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }

 private:
  // The file of the name, which is removed with the listener.
  class Name;

  LocalListener(Descriptor descriptor, std::string_view name, std::unique_ptr<Name> file);

  Descriptor descriptor_;
  std::string name_;
  std::int64_t process_;
  std::unique_ptr<Name> file_;  // removed before the descriptor is closed
};

}  // namespace bitsnap::os
