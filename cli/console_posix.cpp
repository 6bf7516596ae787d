// Terminal and signals on POSIX systems.
#include <csignal>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/console.hpp"

namespace bitsnap::cli {

namespace {

volatile std::sig_atomic_t g_signal = 0;

void on_signal(int signal) { g_signal = signal; }

}  // namespace

bool is_terminal(std::FILE* stream) noexcept { return ::isatty(::fileno(stream)) == 1; }

std::optional<std::size_t> terminal_width(std::FILE* stream) noexcept {
  winsize size{};
  if (!is_terminal(stream) || ::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return std::nullopt;
  }
  return size.ws_col;
}

void open_standard_streams() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1 && ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) {
      return;
    }
  }
}

void catch_interrupts() noexcept {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) {
      continue;
    }
    struct sigaction action{};
    action.sa_handler = on_signal;
    // Reset: the second one ends the process. Restart: no system call of the library fails for this.
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

int interrupt_signal() noexcept { return g_signal; }

}  // namespace bitsnap::cli
