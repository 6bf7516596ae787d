// A connection to an agent that sends any message, valid or not. It can own an arena. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/writer.hpp>

#include "engine/messages.hpp"
#include "engine/packet.hpp"
#include "engine/slot_layout.hpp"
#include "os/local_socket.hpp"
#include "os/shared_memory.hpp"

namespace bitsnap::engine {

class RawConnection {
 public:
  // Throws if there is no agent.
  explicit RawConnection(const std::string& job);

  // Returns false if the message could not be sent within one second.
  bool send(ConstByteSpan bytes, std::span<const int> descriptors = {});
  bool send(MessageKind kind, std::string body = "{}", std::span<const int> descriptors = {});
  // The next message that is no progress event; nullopt after the timeout or when the connection is closed.
  std::optional<Packet> receive(std::int64_t timeout_ms = 5000);
  // Sends a request and receives the answer.
  std::optional<Packet> ask(MessageKind kind, std::string body = "{}", std::span<const int> descriptors = {});
  // Waits until a save reaches the stage or fails; nullopt after the timeout.
  std::optional<ProgressEvent> wait_for(std::uint64_t ticket, Stage stage, std::int64_t timeout_ms = 10'000);
  // Whether the agent closes the connection within 5 s.
  bool is_closed();

  // Says hello as the trainer of a rank; the store is `directory`/run.
  std::optional<Packet> say_hello(const std::string& job, const std::string& directory, std::uint32_t rank = 0,
                                  std::uint32_t world_size = 1);
  // Creates an arena for states of this size and sends it.
  std::optional<Packet> hand_over_arena(const State& state, std::uint32_t slots = 2);
  // Copies a state into a slot.
  void fill(std::uint32_t slot, const State& state);
  // A `staged` message for the state that was copied last.
  [[nodiscard]] Staged staged(std::uint64_t ticket, std::uint32_t slot, std::uint64_t step, bool persist = true) const;
  [[nodiscard]] ByteSpan slot(std::uint32_t number) const;
  [[nodiscard]] const os::SharedMemory& arena() const { return *arena_; }
  [[nodiscard]] const ArenaOffer& offer() const noexcept { return offer_; }
  // The descriptors of the last answer.
  [[nodiscard]] std::vector<os::Descriptor>& descriptors() noexcept { return descriptors_; }

 private:
  os::LocalConnection connection_;
  std::uint32_t number_ = 0;
  std::optional<os::SharedMemory> arena_;
  os::MappedMemory mapping_;
  ArenaOffer offer_;
  std::uint64_t bytes_ = 0;
  std::vector<ProgressEvent> progress_;
  std::vector<os::Descriptor> descriptors_;
};

}  // namespace bitsnap::engine
