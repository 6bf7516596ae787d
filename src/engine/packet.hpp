// One message between a trainer and its agent as bytes: docs/spec/engine.md, "Messages". What its body says is in
// messages.hpp. No state, no I/O.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"
#include "store/sealed_json.hpp"

namespace bitsnap::engine {

using Json = store::Json;

inline constexpr std::uint16_t kProtocol = 0;
inline constexpr std::size_t kPacketHeaderBytes = 16;
inline constexpr std::size_t kMaxPacketBytes = std::size_t{1} << 15;

// On the wire: never change or reuse.
enum class MessageKind : std::uint16_t {
  hello = 1,
  arena = 2,
  staged = 3,
  list = 4,
  fetch = 5,
  bye = 6,
  status = 7,
  stop = 8,
  ok = 64,
  refused = 65,
  welcome = 66,
  steps = 67,
  fetched = 68,
  report = 69,
  progress = 96,
};

// "hello", "arena", ...; "unknown".
[[nodiscard]] std::string_view message_kind_name(MessageKind kind) noexcept;
// How many descriptors a message of this kind may bring.
[[nodiscard]] std::size_t most_descriptors(MessageKind kind) noexcept;

struct Packet {
  MessageKind kind = MessageKind::ok;
  std::uint32_t number = 0;  // of the request; 0 in an event
  Json body = Json::object();
};

// resource_exhausted where the body does not fit into a packet.
[[nodiscard]] Result<std::vector<std::byte>> serialize_packet(const Packet& packet);

// corrupt for everything that the document does not allow; unsupported for another protocol, of which only the header
// is looked at. A kind that is not known is corrupt: nobody sends what was not agreed upon by `hello`.
[[nodiscard]] Result<Packet> parse_packet(ConstByteSpan bytes);
// A JSON object that somebody else wrote, in a packet or beside it; corrupt where it is none, or nested too deep.
[[nodiscard]] Result<Json> parse_object(std::string_view text);
// The number in the header, to answer a packet of another protocol; 0 where there is none.
[[nodiscard]] std::uint32_t packet_number(ConstByteSpan bytes) noexcept;

}  // namespace bitsnap::engine
