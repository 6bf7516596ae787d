// Somebody who is connected to an agent and says what he likes, right or wrong, message by message. For one thread.
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
  // Throws where there is no agent.
  explicit RawConnection(const std::string& job);

  // False where it could not be sent within a second.
  bool send(ConstByteSpan bytes, std::span<const int> descriptors = {});
  bool send(MessageKind kind, Json body = Json::object(), std::span<const int> descriptors = {});
  // The next that is no progress; nullopt where nothing came in time, or the connection was closed.
  std::optional<Packet> receive(std::int64_t timeout_ms = 5000);
  // Sends, and receives the answer.
  std::optional<Packet> ask(MessageKind kind, Json body = Json::object(), std::span<const int> descriptors = {});
  // Waits for a save to come as far as this, or to fail; nullopt where it did neither in time.
  std::optional<ProgressEvent> wait_for(std::uint64_t ticket, Stage stage, std::int64_t timeout_ms = 10'000);
  // Whether the agent closes the connection soon.
  bool is_closed();

  // As the trainer of a rank, at a store below this directory.
  std::optional<Packet> say_hello(const std::string& job, const std::string& directory, std::uint32_t rank = 0,
                                  std::uint32_t world_size = 1);
  // Makes an arena for such states, and hands it over.
  std::optional<Packet> hand_over_arena(const State& state, std::uint32_t slots = 2);
  // Fills a slot of it.
  void fill(std::uint32_t slot, const State& state);
  // Of what was filled last.
  [[nodiscard]] Staged staged(std::uint64_t ticket, std::uint32_t slot, std::uint64_t step, bool persist = true) const;
  [[nodiscard]] ByteSpan slot(std::uint32_t number) const;
  [[nodiscard]] const os::SharedMemory& arena() const { return *arena_; }
  [[nodiscard]] const ArenaOffer& offer() const noexcept { return offer_; }
  // Of the answer that was received last.
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
