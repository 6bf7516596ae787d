#include "engine/packet.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "base/utf8.hpp"
#include "json/json_reader.hpp"

namespace bitsnap::engine {
namespace {

constexpr std::uint32_t kPacketMagic = 0x414E5342;  // "BSNA"

struct KindRow {
  MessageKind kind;
  std::string_view name;
  std::size_t descriptors;
};

constexpr std::array kKinds = {
    KindRow{MessageKind::hello, "hello", 0},     KindRow{MessageKind::arena, "arena", 1},
    KindRow{MessageKind::staged, "staged", 0},   KindRow{MessageKind::list, "list", 0},
    KindRow{MessageKind::fetch, "fetch", 0},     KindRow{MessageKind::bye, "bye", 0},
    KindRow{MessageKind::status, "status", 0},   KindRow{MessageKind::stop, "stop", 0},
    KindRow{MessageKind::decide, "decide", 0},   KindRow{MessageKind::hurry, "hurry", 0},
    KindRow{MessageKind::persist, "persist", 0}, KindRow{MessageKind::rotate, "rotate", 0},
    KindRow{MessageKind::ok, "ok", 0},           KindRow{MessageKind::refused, "refused", 0},
    KindRow{MessageKind::welcome, "welcome", 1}, KindRow{MessageKind::steps, "steps", 1},
    KindRow{MessageKind::fetched, "fetched", 1}, KindRow{MessageKind::report, "report", 1},
    KindRow{MessageKind::decided, "decided", 0}, KindRow{MessageKind::progress, "progress", 0},
};

const KindRow* find_kind(MessageKind kind) noexcept {
  const auto* const found = std::ranges::find(kKinds, kind, &KindRow::kind);
  return found == kKinds.end() ? nullptr : found;
}

// Whether the text is a JSON object, whatever it contains.
Result<void> check_object(std::string_view text) {
  const auto skip = [](json::JsonReader& in) {
    return in.read_object([&](std::string_view) { return in.skip_value(); });
  };
  return json::read_whole_json(text, skip, kMaxBodyNesting);
}

}  // namespace

std::string_view message_kind_name(MessageKind kind) noexcept {
  const KindRow* const row = find_kind(kind);
  return row == nullptr ? "unknown" : row->name;
}

std::size_t most_descriptors(MessageKind kind) noexcept {
  const KindRow* const row = find_kind(kind);
  return row == nullptr ? 0 : row->descriptors;
}

Result<std::vector<std::byte>> serialize_packet(const Packet& packet) {
  return no_throw("message", [&]() -> Result<std::vector<std::byte>> {
    const std::string body = replace_invalid_utf8(packet.body);
    if (body.size() > kMaxPacketBytes - kPacketHeaderBytes) {
      return fail(ErrorKind::resource_exhausted,
                  fmt::format("message '{}' has a body of {} bytes, the limit is {}", message_kind_name(packet.kind),
                              body.size(), kMaxPacketBytes - kPacketHeaderBytes));
    }
    std::vector<std::byte> bytes(kPacketHeaderBytes + body.size());
    store_le(bytes.data(), kPacketMagic);
    store_le(bytes.data() + 4, kProtocol);
    store_le(bytes.data() + 6, static_cast<std::uint16_t>(packet.kind));
    store_le(bytes.data() + 8, static_cast<std::uint32_t>(body.size()));
    store_le(bytes.data() + 12, packet.number);
    std::ranges::copy(as_byte_span(body), bytes.begin() + kPacketHeaderBytes);
    return bytes;
  });
}

Result<Packet> parse_packet(ConstByteSpan bytes) {
  return no_throw("message", [&]() -> Result<Packet> {
    ByteCursor cursor(bytes);
    BITSNAP_ASSIGN(const auto magic, cursor.read<std::uint32_t>("the magic of a message"));
    if (magic != kPacketMagic)
      return fail(ErrorKind::corrupt, fmt::format("message has magic {:08x}, expected {:08x}", magic, kPacketMagic));
    BITSNAP_ASSIGN(const auto protocol, cursor.read<std::uint16_t>("the protocol of a message"));
    if (protocol != kProtocol) {
      return fail(
          ErrorKind::unsupported,
          fmt::format("message has protocol version {}, this version of bitsnap supports {}", protocol, kProtocol));
    }
    Packet packet;
    BITSNAP_ASSIGN(const auto kind, cursor.read<std::uint16_t>("the kind of a message"));
    packet.kind = static_cast<MessageKind>(kind);
    if (find_kind(packet.kind) == nullptr)
      return fail(ErrorKind::corrupt, fmt::format("unknown message kind {}", kind));
    const std::string name(message_kind_name(packet.kind));
    BITSNAP_ASSIGN(const auto size, cursor.read<std::uint32_t>("the size of a message"));
    BITSNAP_ASSIGN(packet.number, cursor.read<std::uint32_t>("the number of a message"));
    if (size != cursor.remaining() || bytes.size() > kMaxPacketBytes) {
      return fail(ErrorKind::corrupt,
                  fmt::format("message '{}': the body has {} bytes, expected {}; the limit is {}", name,
                              cursor.remaining(), size, kMaxPacketBytes - kPacketHeaderBytes));
    }
    BITSNAP_ASSIGN(const ConstByteSpan body, cursor.take(size, "the body of a message"));
    packet.body = as_text(body);
    Result<void> checked = check_object(packet.body);
    if (!checked) return tl::unexpected(std::move(checked).error().within(fmt::format("message '{}'", name)));
    return packet;
  });
}

std::uint32_t packet_number(ConstByteSpan bytes) noexcept {
  return bytes.size() < kPacketHeaderBytes ? 0 : load_le<std::uint32_t>(bytes.data() + 12);
}

}  // namespace bitsnap::engine
