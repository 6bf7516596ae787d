// Numbers and names as people read them.
#include "cli/text_format.hpp"

#include <array>
#include <ctime>
#include <optional>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace bitsnap::cli {

namespace {

constexpr std::string_view kEllipsis = "...";

// Three significant digits below 1000.
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

std::string scaled(double value, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{} {}{}", three_digits(value), kPrefixes[prefix], unit);
}

// Rounded down. A day is left at both ends for the time zones.
std::optional<std::time_t> to_seconds(std::int64_t unix_ms) {
  constexpr std::int64_t kFirst = -62'135'510'400;  // of 0001-01-02
  constexpr std::int64_t kLast = 253'402'214'400;   // of 9999-12-31
  const std::int64_t seconds = unix_ms / 1000 - (unix_ms % 1000 < 0 ? 1 : 0);
  return seconds < kFirst || seconds > kLast ? std::nullopt : std::optional<std::time_t>(seconds);
}

// Offset of the code point number `index`, or the text's size.
std::size_t offset_of(std::string_view text, std::size_t index) noexcept {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) {
    const std::size_t size = utf8_sequence(text, at);
    at += size == 0 ? 1 : size;
  }
  return at;
}

}  // namespace

std::string format_size(std::uint64_t bytes) {
  return bytes < 1000 ? fmt::format("{} B", bytes) : scaled(static_cast<double>(bytes), "B");
}

std::string format_ratio(double ratio) {
  if (ratio < 9.9995) return fmt::format("{:.3f}x", ratio);
  if (ratio < 99.995) return fmt::format("{:.2f}x", ratio);
  return fmt::format("{:.{}f}x", ratio, ratio < 999.95 ? 1 : 0);
}

std::string format_ratio(std::uint64_t raw_bytes, std::uint64_t stored_bytes) {
  return stored_bytes == 0 ? "-" : format_ratio(static_cast<double>(raw_bytes) / static_cast<double>(stored_bytes));
}

std::string format_speed(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? scaled(static_cast<double>(bytes) / seconds, "B/s") : "-";
}

std::string format_count(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string format_shape(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string format_share(double share, std::string_view sign) {
  if (share <= 0) return fmt::format("0{}", sign);
  if (share >= 1) return fmt::format("100{}", sign);
  if (share < 0.0005) return fmt::format("<0.1{}", sign);
  return share > 0.999 ? fmt::format(">99.9{}", sign) : fmt::format("{:.1f}{}", 100 * share, sign);
}

std::string format_share(std::uint64_t part, std::uint64_t whole) {
  return format_share(whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole));
}

std::string format_local_time(std::int64_t unix_ms) {
  const auto seconds = to_seconds(unix_ms);
  return seconds ? fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(*seconds)) : "-";
}

std::string format_utc_time(std::int64_t unix_ms) {
  const auto seconds = to_seconds(unix_ms);
  return seconds ? fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(*seconds), unix_ms - *seconds * 1000) : "-";
}

std::string format_plural(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

std::size_t display_width(std::string_view text) noexcept {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size(); ++width) {
    const std::size_t size = static_cast<unsigned char>(text[at]) < 0x80 ? 1 : utf8_sequence(text, at);
    at += size == 0 ? 1 : size;
  }
  return width;
}

std::string elide_middle(std::string_view text, std::size_t width) {
  const std::size_t full = display_width(text);
  if (full <= width) return std::string(text);
  if (width <= kEllipsis.size()) return std::string(kEllipsis.substr(0, width));
  // The end of a tensor's name says more than its beginning.
  const std::size_t kept = width - kEllipsis.size();
  const std::size_t head = kept / 2;
  std::string out(text.substr(0, offset_of(text, head)));
  out.append(kEllipsis).append(text.substr(offset_of(text, full - (kept - head))));
  return out;
}

std::string elide_end(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width <= kEllipsis.size()) return std::string(kEllipsis.substr(0, width));
  return std::string(text.substr(0, offset_of(text, width - kEllipsis.size()))).append(kEllipsis);
}

}  // namespace bitsnap::cli
