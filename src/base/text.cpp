// UTF-8, and the characters that printable() escapes.
#include <bitsnap/text.hpp>

#include <algorithm>
#include <array>
#include <cstdint>

namespace bitsnap {
namespace {

constexpr std::string_view kTextHexDigits = "0123456789abcdef";

struct CodePoints {
  std::uint32_t first;
  std::uint32_t last;
};

// Ascending.
constexpr std::array kEscapedCodePoints = {
    CodePoints{0x0000, 0x001F},    // controls
    CodePoints{0x007F, 0x009F},    // delete, and controls that some terminals obey
    CodePoints{0x00AD, 0x00AD},    // soft hyphen
    CodePoints{0x061C, 0x061C},    // Arabic letter mark
    CodePoints{0x180E, 0x180E},    // Mongolian vowel separator
    CodePoints{0x200B, 0x200F},    // zero width, direction marks
    CodePoints{0x2028, 0x202E},    // separators, direction embeddings and overrides
    CodePoints{0x2060, 0x206F},    // invisible operators, direction isolates
    CodePoints{0xFEFF, 0xFEFF},    // byte order mark
    CodePoints{0xFFF9, 0xFFFB},    // annotations
    CodePoints{0xE0000, 0xE0FFF},  // tags
};

constexpr std::uint8_t text_byte(char c) noexcept { return static_cast<std::uint8_t>(c); }

// Precondition: `sequence` is one UTF-8 sequence.
std::uint32_t code_point_of(std::string_view sequence) noexcept {
  const std::uint32_t lead = text_byte(sequence.front());
  std::uint32_t point = sequence.size() == 1 ? lead : lead & (0x7Fu >> sequence.size());
  for (const char c : sequence.substr(1)) point = (point << 6) | (text_byte(c) & 0x3Fu);
  return point;
}

bool is_escaped(std::uint32_t point) noexcept {
  return std::ranges::any_of(kEscapedCodePoints,
                             [point](const CodePoints& range) { return range.first <= point && point <= range.last; });
}

void append_escape(std::string& to, std::uint32_t point) {
  const int digits = point <= 0xFF ? 2 : point <= 0xFFFF ? 4 : 8;
  to.push_back('\\');
  to.push_back(digits == 2 ? 'x' : digits == 4 ? 'u' : 'U');
  for (int digit = digits - 1; digit >= 0; --digit) to.push_back(kTextHexDigits[(point >> (4 * digit)) & 15]);
}

}  // namespace

std::size_t utf8_sequence(std::string_view text, std::size_t at) noexcept {
  const std::uint8_t lead = text_byte(text[at]);
  if (lead < 0x80) return 1;
  // The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF.
  std::size_t size = 0;
  std::uint8_t second_min = 0x80;
  std::uint8_t second_max = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) second_min = 0xA0;
    if (lead == 0xED) second_max = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) second_min = 0x90;
    if (lead == 0xF4) second_max = 0x8F;
  } else {
    return 0;
  }
  if (text.size() - at < size) return 0;
  if (text_byte(text[at + 1]) < second_min || text_byte(text[at + 1]) > second_max) return 0;
  for (std::size_t i = 2; i < size; ++i) {
    if ((text_byte(text[at + i]) & 0xC0) != 0x80) return 0;
  }
  return size;
}

bool is_printable(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = utf8_sequence(text, at);
    if (size == 0 || is_escaped(code_point_of(text.substr(at, size)))) return false;
    at += size;
  }
  return true;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = utf8_sequence(text, at);
    const std::uint32_t point = size == 0 ? text_byte(text[at]) : code_point_of(text.substr(at, size));
    if (size == 0 || (is_escaped(point) && kept.find(text[at]) == std::string_view::npos)) {
      append_escape(result, point);
    } else {
      result.append(text.substr(at, size));
    }
    at += std::max<std::size_t>(size, 1);
  }
  return result;
}

}  // namespace bitsnap
