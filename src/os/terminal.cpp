// isatty() and the window size.
#include "os/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

namespace bitsnap::os {

bool is_terminal(int fd) noexcept { return ::isatty(fd) == 1; }

std::optional<unsigned> terminal_width(int fd) noexcept {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace bitsnap::os
