// One message between a trainer and its agent as bytes: docs/spec/engine.md, "Messages". messages.hpp has the bodies.
// No state, no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>

#include "base/bytes.hpp"

namespace bitsnap::engine {

inline constexpr std::uint16_t kProtocol = 0;
inline constexpr std::size_t kPacketHeaderBytes = 16;
inline constexpr std::size_t kMaxPacketBytes = std::size_t{1} << 15;
inline constexpr std::size_t kMaxBodyNesting = 8;

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
  decide = 9,
  hurry = 10,
  persist = 11,
  rotate = 12,
  ok = 64,
  refused = 65,
  welcome = 66,
  steps = 67,
  fetched = 68,
  report = 69,
  decided = 70,
  progress = 96,
};

// "hello", "arena", ...; "unknown".
[[nodiscard]] std::string_view message_kind_name(MessageKind kind) noexcept;
// The most descriptors that a message of this kind may have.
[[nodiscard]] std::size_t most_descriptors(MessageKind kind) noexcept;

struct Packet {
  MessageKind kind = MessageKind::ok;
  std::uint32_t number = 0;  // of the request; 0 in an event
  std::string body = "{}";   // the text of a JSON object
};

// resource_exhausted if the body does not fit into a packet. Bytes of the body that are not UTF-8 are replaced: a
// message of the operating system may contain them, and its text is for people.
[[nodiscard]] Result<std::vector<std::byte>> serialize_packet(const Packet& packet);

// corrupt for everything that the document does not allow, including unknown kinds; unsupported for another protocol,
// of which only the header is read.
[[nodiscard]] Result<Packet> parse_packet(ConstByteSpan bytes);
// The number in the header, to answer a packet of another protocol; 0 if the packet is too short.
[[nodiscard]] std::uint32_t packet_number(ConstByteSpan bytes) noexcept;

}  // namespace bitsnap::engine
