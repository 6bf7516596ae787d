// Sends messages and fills slots as a trainer does.
#include "engine/raw_connection_testing.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/agent_link.hpp"
#include "exec/executor.hpp"
#include "os/clock.hpp"

namespace bitsnap::engine {
namespace {

os::LocalConnection connect(const std::string& job) {
  auto connection = connect_to_agent(job, 5000);
  if (!connection) throw std::runtime_error(connection.error().message());
  return std::move(*connection);
}

}  // namespace

RawConnection::RawConnection(const std::string& job) : connection_(connect(job)) {}

bool RawConnection::send(ConstByteSpan bytes, std::span<const int> descriptors) {
  return connection_.send(bytes, descriptors, 1000).has_value();
}

bool RawConnection::send(MessageKind kind, std::string body, std::span<const int> descriptors) {
  const auto bytes = serialize_packet({kind, ++number_, std::move(body)});
  return bytes && send(*bytes, descriptors);
}

std::optional<Packet> RawConnection::receive(std::int64_t timeout_ms) {
  const os::Stopwatch stopwatch;
  for (;;) {
    const auto passed = static_cast<std::int64_t>(stopwatch.elapsed_ns() / 1'000'000);
    auto message = connection_.receive(kMaxPacketBytes, os::kMaxMessageDescriptors,
                                       std::max<std::int64_t>(timeout_ms - passed, 0));
    if (!message || !*message) return std::nullopt;
    auto packet = parse_packet((*message)->bytes);
    if (!packet) throw std::runtime_error(packet.error().message());
    if (packet->kind != MessageKind::progress) {
      descriptors_ = std::move((*message)->descriptors);
      return std::move(*packet);
    }
    progress_.push_back(parse_body<ProgressEvent>(packet->body).value());
  }
}

std::optional<Packet> RawConnection::ask(MessageKind kind, std::string body, std::span<const int> descriptors) {
  if (!send(kind, std::move(body), descriptors)) return std::nullopt;
  return receive();
}

std::optional<ProgressEvent> RawConnection::wait_for(std::uint64_t ticket, Stage stage, std::int64_t timeout_ms) {
  const os::Stopwatch stopwatch;
  for (;;) {
    for (const ProgressEvent& event : progress_) {
      if (event.ticket == ticket && (event.stage == stage || event.stage == Stage::failed)) return event;
    }
    const auto passed = static_cast<std::int64_t>(stopwatch.elapsed_ns() / 1'000'000);
    auto message = connection_.receive(kMaxPacketBytes, os::kMaxMessageDescriptors,
                                       std::max<std::int64_t>(timeout_ms - passed, 0));
    if (!message || !*message) return std::nullopt;
    const auto packet = parse_packet((*message)->bytes);
    if (packet && packet->kind == MessageKind::progress)
      progress_.push_back(parse_body<ProgressEvent>(packet->body).value());
  }
}

bool RawConnection::is_closed() {
  const os::Stopwatch stopwatch;
  while (stopwatch.elapsed_seconds() < 5) {
    const auto message = connection_.receive(kMaxPacketBytes, os::kMaxMessageDescriptors, 100);
    if (message ? !*message : message.error().kind() != ErrorKind::busy) return true;
  }
  return false;
}

std::optional<Packet> RawConnection::say_hello(const std::string& job, const std::string& directory, std::uint32_t rank,
                                               std::uint32_t world_size) {
  Hello hello;
  hello.job = job;
  hello.store = directory + "/run";
  hello.rank = rank;
  hello.world_size = world_size;
  hello.memory_snapshots = 2;
  hello.budget_bytes = std::uint64_t{1} << 30;  // room for whole chains
  hello.linger_ms = 60'000;
  hello.threads = 2;
  return ask(MessageKind::hello, serialize_body(hello));
}

std::optional<Packet> RawConnection::hand_over_arena(const State& state, std::uint32_t slots) {
  const SlotPlan plan = plan_slot(state).value();
  offer_ = {slots, (plan.bytes + 2 * kSlotUnit - 1) / kSlotUnit * kSlotUnit};
  arena_ = os::SharedMemory::create("bitsnap-test", kSlotUnit + slots * offer_.slot_bytes).value();
  mapping_ = arena_->map(os::MemoryAccess::read_write).value();
  const int descriptor = arena_->descriptor();
  return ask(MessageKind::arena, serialize_body(offer_), std::span(&descriptor, 1));
}

ByteSpan RawConnection::slot(std::uint32_t number) const {
  return mapping_.writable_bytes().subspan(static_cast<std::size_t>(kSlotUnit + number * offer_.slot_bytes),
                                           static_cast<std::size_t>(offer_.slot_bytes));
}

void RawConnection::fill(std::uint32_t number, const State& state) {
  const SlotPlan plan = plan_slot(state).value();
  bytes_ = plan.bytes;
  if (!fill_slot(state, plan, slot(number), *exec::make_executor(1))) throw std::runtime_error("not filled");
}

Staged RawConnection::staged(std::uint64_t ticket, std::uint32_t slot, std::uint64_t step, bool persist) const {
  return {.ticket = ticket, .slot = slot, .step = step, .bytes = bytes_, .persist = persist, .again = false};
}

}  // namespace bitsnap::engine
