// UTF-8 by sequences; ASCII, of which most names consist, by eight bytes at a time.
#include "base/utf8.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <bitsnap/text.hpp>

namespace bitsnap {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// At least how many bytes at the beginning of the text are ASCII; a multiple of eight.
std::size_t ascii_bytes(std::string_view text) noexcept {
  constexpr std::uint64_t kHighBits = 0x8080808080808080;
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, 8);
    if ((bytes & kHighBits) != 0) break;
  }
  return at;
}

}  // namespace

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = ascii_bytes(text); at < text.size();) {
    const std::size_t size = utf8_sequence(text, at);
    if (size == 0) return false;
    at += size;
    if (size > 1) at += ascii_bytes(text.substr(at));
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = utf8_sequence(text, at);
    valid.append(size == 0 ? kReplacementCharacter : text.substr(at, size));
    at += std::max<std::size_t>(size, 1);
  }
  return valid;
}

}  // namespace bitsnap
