// Strings, numbers, hexadecimal and base64.
#include "json/json_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace bitsnap::json {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::uint8_t byte_of(char c) noexcept { return static_cast<std::uint8_t>(c); }

void append_escaped_control(std::string& to, std::uint8_t c) {
  to.append("\\u00");
  to.push_back(kHexDigits[c >> 4]);
  to.push_back(kHexDigits[c & 15]);
}

constexpr std::array<std::uint8_t, 256> base64_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(0xFF);
  for (std::size_t i = 0; i < kBase64Digits.size(); ++i)
    values[byte_of(kBase64Digits[i])] = static_cast<std::uint8_t>(i);
  return values;
}

}  // namespace

std::size_t plain_characters(std::string_view text) noexcept {
  constexpr std::uint64_t kEach = 0x0101010101010101;
  constexpr std::uint64_t kHigh = 0x80 * kEach;
  // The high bit of each byte that is below 128 and zero; of others, behind such a byte, perhaps, too.
  const auto zeros = [](std::uint64_t bytes) { return (bytes - kEach) & ~bytes; };
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, 8);
    const std::uint64_t below_space = (bytes - 0x20 * kEach) & ~bytes;
    const std::uint64_t above_tilde = bytes + kEach;  // 127 and above
    const std::uint64_t special =
        below_space | above_tilde | bytes | zeros(bytes ^ ('"' * kEach)) | zeros(bytes ^ (std::uint64_t{'\\'} * kEach));
    if ((special & kHigh) != 0) break;
  }
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  while (at < text.size() && is_plain(text[at])) ++at;
  return at;
}

void append_json_string(std::string& to, std::string_view text, JsonEscapes escapes) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
  constexpr std::string_view kLetters = "\"\\nrtbf";
  const std::string_view escaped = kEscaped.substr(0, escapes == JsonEscapes::all_short ? 7 : 5);
  to.push_back('"');
  while (true) {
    const std::size_t plain = plain_characters(text);
    to.append(text.substr(0, plain));
    if (plain == text.size()) break;
    const char c = text[plain];
    text.remove_prefix(plain + 1);
    if (const std::size_t found = escaped.find(c); found != std::string_view::npos) {
      to.push_back('\\');
      to.push_back(kLetters[found]);
    } else if (byte_of(c) < 0x20) {
      append_escaped_control(to, byte_of(c));
    } else {
      to.push_back(c);
    }
  }
  to.push_back('"');
}

void append_double(std::string& to, double number) {
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
  to.append(text);
  if (text.find_first_of(".e") == std::string_view::npos) to.append(".0");
}

std::optional<std::uint64_t> parse_hex(std::string_view text) noexcept {
  if (text.size() != 16) return std::nullopt;
  std::uint64_t number = 0;
  for (const char c : text) {
    const std::size_t digit = kHexDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    number = number << 4 | digit;
  }
  return number;
}

std::string to_base64(std::string_view bytes) {
  std::string to;
  to.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t size = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) group = group << 8 | (i < size ? byte_of(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i) to.push_back(i <= size ? kBase64Digits[(group >> (18 - 6 * i)) & 63] : '=');
  }
  return to;
}

std::optional<std::string> parse_base64(std::string_view text) {
  static constexpr std::array<std::uint8_t, 256> kValues = base64_values();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::size_t padding = 0;
    if (at + 4 == text.size()) padding = text[at + 3] != '=' ? 0U : text[at + 2] != '=' ? 1U : 2U;
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 4 - padding; ++i) {
      const std::uint8_t value = kValues[byte_of(text[at + i])];
      if (value == 0xFF) return std::nullopt;
      group |= std::uint32_t{value} << (18 - 6 * i);
    }
    const std::size_t size = 3 - padding;
    if (size < 3 && (group & ((std::uint32_t{1} << (8 * (3 - size))) - 1)) != 0) return std::nullopt;
    for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<char>(group >> (16 - 8 * i) & 0xFF));
  }
  return bytes;
}

}  // namespace bitsnap::json
