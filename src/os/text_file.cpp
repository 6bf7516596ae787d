// Reads until the end, because files of /proc have no size.
#include "os/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "os/descriptor_posix.hpp"

namespace bitsnap::os {

std::optional<std::string> read_text_file(const std::string& path) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  const Descriptor fd = open_descriptor(path.c_str(), O_RDONLY);
  if (!fd.is_open()) return std::nullopt;
  std::string text;
  char piece[4096];
  while (text.size() < kMaxBytes) {
    const ssize_t got = ::read(fd.get(), piece, sizeof(piece));
    if (got > 0) {
      text.append(piece, static_cast<std::size_t>(got));
    } else if (got == 0) {
      break;
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
  return text;
}

std::vector<std::string_view> split_text(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::optional<std::string_view> find_line(std::string_view text, std::string_view prefix) {
  for (const std::string_view line : split_text(text, '\n')) {
    if (line.starts_with(prefix)) return line.substr(prefix.size());
  }
  return std::nullopt;
}

std::optional<std::uint64_t> field_bytes(std::string_view text, std::string_view field) {
  std::string_view value = find_line(text, std::string(field) + ":").value_or("");
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  std::uint64_t kibibytes = 0;
  if (std::from_chars(value.data(), value.data() + value.size(), kibibytes).ec != std::errc()) return std::nullopt;
  if (kibibytes > ~std::uint64_t{0} / 1024) return std::nullopt;
  return kibibytes * 1024;
}

}  // namespace bitsnap::os
