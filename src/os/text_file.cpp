// Reads until the end and not by size: the files of /proc have none.
#include "os/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

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

}  // namespace bitsnap::os
