#include "interop/pickle/pickle_writer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "base/bytes.hpp"

namespace bitsnap::interop {
namespace {

template <typename T>
void append_le(std::string& text, T value) {
  std::array<std::byte, sizeof(T)> bytes{};
  store_le(bytes.data(), value);
  for (const std::byte byte : bytes) text += static_cast<char>(byte);
}

}  // namespace

void PickleWriter::integer(std::int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<std::uint8_t>::max()) {
    text_ += 'K';
    text_ += static_cast<char>(value);
  } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
    text_ += 'J';
    append_le(text_, static_cast<std::uint32_t>(value));
  } else {
    text_ += "\x8a\x08";
    append_le(text_, static_cast<std::uint64_t>(value));
  }
}

void PickleWriter::unsigned_integer(std::uint64_t value) {
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    integer(static_cast<std::int64_t>(value));
    return;
  }
  text_ += "\x8a\x09";
  append_le(text_, value);
  text_ += '\0';
}

void PickleWriter::real(double value) {
  text_ += 'G';
  std::string bytes;
  append_le(bytes, std::bit_cast<std::uint64_t>(value));
  std::ranges::reverse(bytes);
  text_ += bytes;
}

void PickleWriter::string(std::string_view utf8) {
  text_ += 'X';
  append_le(text_, static_cast<std::uint32_t>(utf8.size()));
  text_ += utf8;
}

void PickleWriter::bytes(std::string_view bytes) {
  std::string utf8;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8 += c;
    } else {
      utf8 += static_cast<char>(0xc0U | (byte >> 6U));
      utf8 += static_cast<char>(0x80U | (byte & 0x3fU));
    }
  }
  call("_codecs", "encode", [&] {
    string(utf8);
    string("latin1");
  });
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  text_ += 'c';
  text_ += module;
  text_ += '\n';
  text_ += name;
  text_ += '\n';
}

}  // namespace bitsnap::interop
