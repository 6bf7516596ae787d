// Trainers on other file systems, and a stand-in for an agent.
#include "engine/engine_fixture_testing.hpp"

#include "engine/messages.hpp"
#include "engine/trainer.hpp"
#include "os/process.hpp"

namespace bitsnap::engine {

namespace {

Result<std::unique_ptr<Engine>> engine_of(Result<std::unique_ptr<Engine::Impl>> impl) {
  if (!impl) return tl::unexpected(std::move(impl).error());
  return std::make_unique<Engine>(std::move(*impl));
}

}  // namespace

Result<std::unique_ptr<Engine>> attach_on(os::FileSystem& files, const EngineOptions& options) {
  return engine_of(Engine::Impl::attach(options, &files));
}

Result<std::unique_ptr<Engine>> attach_within(os::MemoryProbe memory, const EngineOptions& options) {
  return engine_of(Engine::Impl::attach(options, nullptr, std::move(memory)));
}

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
