// Any bytes as a message between trainer and agent: an error, or what is written again reads as the same.
//
// The first byte says how the rest is taken: 0: as a packet; any other: as the body of a message of that kind.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "engine/messages.hpp"
#include "engine/packet.hpp"

namespace {

using namespace bitsnap;
using namespace bitsnap::engine;

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename Message>
void read_twice(const Packet& packet) {
  const auto first = parse_body<Message>(packet.body);
  if (!first) {
    // A later version may know the name of a setting's value.
    const ErrorKind kind = first.error().kind();
    require(kind == ErrorKind::corrupt || (kind == ErrorKind::unsupported && packet.kind == MessageKind::hello));
    require(!first.error().message().empty());
    return;
  }
  const std::string written = serialize_body(*first);
  const auto again = parse_body<Message>(written);
  require(again.has_value() && serialize_body(*again) == written);
}

void read_body(const Packet& packet) {
  switch (packet.kind) {
    case MessageKind::hello: return read_twice<Hello>(packet);
    case MessageKind::arena: return read_twice<ArenaOffer>(packet);
    case MessageKind::staged: return read_twice<Staged>(packet);
    case MessageKind::list: return read_twice<ListRequest>(packet);
    case MessageKind::fetch: return read_twice<FetchRequest>(packet);
    case MessageKind::stop: return read_twice<StopRequest>(packet);
    case MessageKind::decide: return read_twice<DecideRequest>(packet);
    case MessageKind::rotate: return read_twice<Rotation>(packet);
    case MessageKind::decided: return read_twice<Decided>(packet);
    case MessageKind::welcome: return read_twice<Welcome>(packet);
    case MessageKind::steps: return read_twice<TextSize>(packet);
    case MessageKind::fetched: return read_twice<Fetched>(packet);
    case MessageKind::report: return read_twice<TextSize>(packet);
    case MessageKind::progress: return read_twice<ProgressEvent>(packet);
    case MessageKind::refused: {
      const Error error = parse_error(packet.body);
      const Error again = parse_error(serialize_body(error));
      require(again.kind() == error.kind());
      return;
    }
    default: return;
  }
}

void read_packet(ConstByteSpan bytes) {
  const auto packet = parse_packet(bytes);
  if (!packet) return;
  require(packet->number == packet_number(bytes));
  read_body(*packet);
  const auto written = serialize_packet(*packet);
  require(written.has_value());
  const auto again = parse_packet(*written);
  require(again.has_value() && again->kind == packet->kind && again->body == packet->body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ConstByteSpan input = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] == 0) {
    read_packet(input);
    return 0;
  }
  std::vector<std::byte> bytes = serialize_packet({static_cast<MessageKind>(data[0]), 7, "{}"}).value();
  store_le(bytes.data() + 8, static_cast<std::uint32_t>(input.size()));
  bytes.erase(bytes.begin() + kPacketHeaderBytes, bytes.end());
  bytes.insert(bytes.end(), input.begin(), input.end());
  read_packet(bytes);
  return 0;
}
