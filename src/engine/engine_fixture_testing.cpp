// A stand-in for an agent.
#include "engine/engine_fixture_testing.hpp"

#include "engine/messages.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {

void play_agent(const os::LocalConnection& connection,
                const std::function<std::optional<Packet>(const Packet& packet)>& answer) {
  for (;;) {
    const auto message = connection.receive(kMaxPacketBytes, 1, static_cast<std::int64_t>(kWaitMs));
    const auto packet = message && *message ? parse_packet((**message).bytes) : fail(ErrorKind::io, "closed");
    if (!packet) return;
    const bool is_hello = packet->kind == MessageKind::hello;
    const auto reply =
        is_hello ? Packet{MessageKind::welcome, packet->number, serialize_body(Welcome{os::process_id(), "0", 0, {}})}
                 : answer(*packet);
    if (!reply) return;
    static_cast<void>(connection.send(serialize_packet(*reply).value(), {}, 1000));
  }
}

}  // namespace bitsnap::engine
