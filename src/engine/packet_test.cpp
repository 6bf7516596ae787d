// What is no message: every truncation, every flipped byte, sizes that lie, and what a later version would send.
#include "engine/packet.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::engine {
namespace {

using Bytes = std::vector<std::byte>;

Bytes written(const Packet& packet) {
  auto bytes = serialize_packet(packet);
  EXPECT_TRUE(bytes.has_value()) << bytes.error().message();
  return bytes ? std::move(*bytes) : Bytes();
}

Packet example() { return {MessageKind::staged, 7, R"({"ticket":1,"slot":0,"step":100,"bytes":4096})"}; }

// A header as it should be, before any body.
Bytes with_body(std::string_view body) {
  Bytes bytes = written({MessageKind::hello, 1, "{}"});
  store_le(bytes.data() + 8, static_cast<std::uint32_t>(body.size()));
  const ConstByteSpan text = as_byte_span(body);
  bytes.erase(bytes.begin() + kPacketHeaderBytes, bytes.end());
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

ErrorKind kind_of(ConstByteSpan bytes) {
  const auto packet = parse_packet(bytes);
  EXPECT_FALSE(packet.has_value());
  return packet ? ErrorKind::internal : packet.error().kind();
}

TEST(Packet, RoundTrips) {
  for (const MessageKind kind :
       {MessageKind::hello, MessageKind::arena, MessageKind::staged, MessageKind::list, MessageKind::fetch,
        MessageKind::bye, MessageKind::status, MessageKind::stop, MessageKind::ok, MessageKind::refused,
        MessageKind::welcome, MessageKind::steps, MessageKind::fetched, MessageKind::report, MessageKind::progress}) {
    Packet packet = example();
    packet.kind = kind;
    packet.number = 0xffff0000U + static_cast<std::uint32_t>(kind);
    const Bytes bytes = written(packet);
    const auto read = parse_packet(bytes);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->kind, kind);
    EXPECT_EQ(read->number, packet.number);
    EXPECT_EQ(read->body, packet.body);
    EXPECT_EQ(packet_number(bytes), packet.number);
    EXPECT_NE(message_kind_name(kind), "unknown");
  }
}

TEST(Packet, MatchesTheWireFormatOfTheSpecification) {
  const Bytes bytes = written({MessageKind::welcome, 0x01020304, R"({"a":1})"});
  const Bytes expected = [] {
    Bytes made;
    for (const int byte : {0x42, 0x53, 0x4e, 0x41, 0, 0, 66, 0, 7, 0, 0, 0, 4, 3, 2, 1}) {
      made.push_back(static_cast<std::byte>(byte));
    }
    const ConstByteSpan body = as_byte_span(R"({"a":1})");
    made.insert(made.end(), body.begin(), body.end());
    return made;
  }();
  EXPECT_EQ(bytes, expected);
}

TEST(Packet, RejectsEveryTruncation) {
  const Bytes bytes = written(example());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto kind = kind_of(ConstByteSpan(bytes).first(size));
    EXPECT_TRUE(kind == ErrorKind::corrupt || kind == ErrorKind::truncated) << size;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{' '});
  EXPECT_EQ(kind_of(longer), ErrorKind::corrupt);
}

TEST(Packet, RejectsEveryChangedHeaderByteButTheNumber) {
  const Bytes bytes = written(example());
  for (std::size_t at = 0; at < kPacketHeaderBytes; ++at) {
    for (unsigned value = 0; value < 256; ++value) {
      Bytes other = bytes;
      if (other[at] == static_cast<std::byte>(value)) continue;
      other[at] = static_cast<std::byte>(value);
      const auto packet = parse_packet(other);
      if (at >= 12) {
        EXPECT_TRUE(packet.has_value());
      } else if (packet) {
        // Another kind that there is, and nothing else.
        EXPECT_TRUE(at == 6 && packet->kind != MessageKind::staged) << at << " " << value;
      } else {
        EXPECT_EQ(packet.error().kind(), at == 4 || at == 5 ? ErrorKind::unsupported : ErrorKind::corrupt) << at;
      }
    }
  }
}

TEST(Packet, ReadsOnlyTheHeaderOfAnotherProtocol) {
  Bytes bytes = written(example());
  bytes[4] = std::byte{1};
  bytes[6] = std::byte{0xEE};  // a kind that this version does not have
  bytes.resize(kPacketHeaderBytes + 3);
  EXPECT_EQ(kind_of(bytes), ErrorKind::unsupported);
  EXPECT_EQ(packet_number(bytes), 7u);
  EXPECT_EQ(packet_number(ConstByteSpan(bytes).first(kPacketHeaderBytes - 1)), 0u);
}

TEST(Packet, RejectsUnknownMessageKinds) {
  for (std::uint32_t kind = 0; kind < 0x10000; ++kind) {
    Bytes bytes = written({MessageKind::ok, 1, "{}"});
    store_le(bytes.data() + 6, static_cast<std::uint16_t>(kind));
    const bool is_known = message_kind_name(static_cast<MessageKind>(kind)) != "unknown";
    EXPECT_EQ(parse_packet(bytes).has_value(), is_known) << kind;
    if (!is_known) {
      EXPECT_EQ(kind_of(bytes), ErrorKind::corrupt);
      EXPECT_EQ(most_descriptors(static_cast<MessageKind>(kind)), 0u);
    }
  }
}

TEST(Packet, AllowsDescriptorsOnlyForTheSpecifiedKinds) {
  for (std::uint32_t kind = 0; kind < 128; ++kind) {
    const auto name = message_kind_name(static_cast<MessageKind>(kind));
    const bool may = name == "arena" || name == "welcome" || name == "steps" || name == "fetched" || name == "report";
    EXPECT_EQ(most_descriptors(static_cast<MessageKind>(kind)), may ? 1u : 0u) << name;
  }
}

TEST(Packet, RejectsABodyThatIsNotAnObject) {
  for (const std::string_view body : {"", "[]", "1", "null", "\"x\"", "{", "{}x", "{\"a\":}", "{\"a\":1,}", "\xff",
                                      "{\"a\":\"\xff\"}", "{'a':1}", "// c\n{}"}) {
    EXPECT_EQ(kind_of(with_body(body)), ErrorKind::corrupt) << body;
  }
  EXPECT_TRUE(parse_packet(with_body(" {} ")).has_value());
}

TEST(Packet, RejectsNestingBeyondEight) {
  const auto nested = [](std::size_t depth) {
    std::string body = "{\"a\":";
    for (std::size_t i = 1; i < depth; ++i) body += '[';
    if (depth == 1) body += '1';
    for (std::size_t i = 1; i < depth; ++i) body += ']';
    return body + "}";
  };
  EXPECT_TRUE(parse_packet(with_body(nested(8))).has_value());
  EXPECT_EQ(kind_of(with_body(nested(9))), ErrorKind::corrupt);
  EXPECT_EQ(kind_of(with_body(std::string(32'000, '['))), ErrorKind::corrupt);
  // Brackets in a text nest nothing.
  EXPECT_TRUE(parse_packet(with_body("{\"a\":\"[[[[[[[[[[[[[[[[\"}")).has_value());
}

TEST(Packet, RejectsABodyAboveTheLimit) {
  constexpr std::size_t kMostBytes = 32'752;
  const auto of_size = [](std::size_t size) { return R"({"a":")" + std::string(size - 8, 'x') + R"("})"; };
  const Bytes bytes = written({MessageKind::hello, 1, of_size(kMostBytes)});
  EXPECT_EQ(bytes.size(), kMaxPacketBytes);
  EXPECT_TRUE(parse_packet(bytes).has_value());
  const auto larger = serialize_packet({MessageKind::hello, 1, of_size(kMostBytes + 1)});
  ASSERT_FALSE(larger.has_value());
  EXPECT_EQ(larger.error().kind(), ErrorKind::resource_exhausted);
  const std::string body = of_size(kMostBytes + 1);
  EXPECT_EQ(kind_of(with_body(body)), ErrorKind::corrupt);
}

TEST(Packet, ReplacesInvalidUtf8) {
  const Bytes bytes = written({MessageKind::refused, 1, "{\"message\":\"open /tmp/\xff\xfe: no\"}"});
  const auto packet = parse_packet(bytes);
  ASSERT_TRUE(packet.has_value()) << packet.error().message();
  EXPECT_EQ(packet->body, "{\"message\":\"open /tmp/\xEF\xBF\xBD\xEF\xBF\xBD: no\"}");
}

}  // namespace
}  // namespace bitsnap::engine
