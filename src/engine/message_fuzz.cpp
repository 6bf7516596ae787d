// Any bytes as a message between trainer and agent: an error, or what is written again reads as the same.
//
// The first byte says how the rest is taken: 0: as a packet; any other: as the body of a message of that kind.
#include <cstdint>
#include <cstdlib>
#include <span>
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

template <typename T>
void read_twice(const Json& body, Result<T> (*parse)(const Json&)) {
  const auto first = parse(body);
  if (!first) {
    require(first.error().kind() == ErrorKind::corrupt && !first.error().message().empty());
    return;
  }
  const Json written = to_json(*first);
  const auto again = parse(written);
  require(again.has_value() && to_json(*again) == written);
}

void read_body(const Packet& packet) {
  switch (packet.kind) {
    case MessageKind::hello: return read_twice(packet.body, parse_hello);
    case MessageKind::arena: return read_twice(packet.body, parse_arena);
    case MessageKind::staged: return read_twice(packet.body, parse_staged);
    case MessageKind::list: return read_twice(packet.body, parse_list);
    case MessageKind::fetch: return read_twice(packet.body, parse_fetch);
    case MessageKind::stop: return read_twice(packet.body, parse_stop);
    case MessageKind::welcome: return read_twice(packet.body, parse_welcome);
    case MessageKind::steps: return read_twice(packet.body, parse_text_size);
    case MessageKind::fetched: return read_twice(packet.body, parse_fetched);
    case MessageKind::report: return read_twice(packet.body, parse_text_size);
    case MessageKind::progress: return read_twice(packet.body, parse_progress);
    case MessageKind::refused: {
      const Error error = parse_error(packet.body);
      const Error again = parse_error(to_json(error));
      require(again.kind() == error.kind());
      return;
    }
    default: return;
  }
}

void read_packet(ConstByteSpan bytes) {
  const auto packet = parse_packet(bytes);
  if (!packet) return;
  require(packet->body.is_object() && packet->number == packet_number(bytes));
  read_body(*packet);
  // Escapes and numbers may take more letters when they are written again.
  const auto written = serialize_packet(*packet);
  if (!written) return;
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
  std::vector<std::byte> bytes = serialize_packet({static_cast<MessageKind>(data[0]), 7, Json::object()}).value();
  store_le(bytes.data() + 8, static_cast<std::uint32_t>(input.size()));
  bytes.erase(bytes.begin() + kPacketHeaderBytes, bytes.end());
  bytes.insert(bytes.end(), input.begin(), input.end());
  read_packet(bytes);
  return 0;
}
