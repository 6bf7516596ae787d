// Reads the small text files of /proc and /sys. Used by src/os only.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bitsnap::os {

// The first mebibyte of the file; nullopt if it cannot be read.
[[nodiscard]] std::optional<std::string> read_text_file(const std::string& path);

// The parts between the separators; a separator at the end begins no part.
[[nodiscard]] std::vector<std::string_view> split_text(std::string_view text, char separator);

// The rest of the first line that begins with `prefix`.
[[nodiscard]] std::optional<std::string_view> find_line(std::string_view text, std::string_view prefix);

// The number that is all of a text but white space at its end: "1234\n".
template <typename Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with(' ')) text.remove_suffix(1);
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// A field of such a text in bytes, which the text gives in kibibytes: "VmRSS:\t    1234 kB" for "VmRSS".
[[nodiscard]] std::optional<std::uint64_t> field_bytes(std::string_view text, std::string_view field);

}  // namespace bitsnap::os
