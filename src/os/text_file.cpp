// Reads until the end, because files of /proc have no size.
#include "os/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace bitsnap::os {

std::optional<std::string> read_text_file(const std::string& path) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return std::nullopt;
  std::string text;
  char piece[4096];
  while (text.size() < kMaxBytes) {
    const ssize_t got = ::read(fd, piece, sizeof(piece));
    if (got > 0) {
      text.append(piece, static_cast<std::size_t>(got));
    } else if (got == 0) {
      ::close(fd);
      return text;
    } else if (errno != EINTR) {
      ::close(fd);
      return std::nullopt;
    }
  }
  ::close(fd);
  return text;
}

std::optional<std::uint64_t> field_bytes(std::string_view text, std::string_view field) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(field) || !line.substr(field.size()).starts_with(':')) continue;
    line.remove_prefix(field.size() + 1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    std::uint64_t kibibytes = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), kibibytes).ec != std::errc()) return std::nullopt;
    if (kibibytes > ~std::uint64_t{0} / 1024) return std::nullopt;
    return kibibytes * 1024;
  }
  return std::nullopt;
}

}  // namespace bitsnap::os
