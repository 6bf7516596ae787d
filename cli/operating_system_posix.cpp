// Terminal, signals and external commands on POSIX systems. External commands are called by the main thread before it
// starts other threads.
#include "cli/operating_system.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace bitsnap::cli {

namespace {

volatile std::sig_atomic_t g_signal = 0;

void on_signal(int signal) { g_signal = signal; }

namespace fs = std::filesystem;

// The folder of this program, with links resolved: a link in ~/bin points to a folder that has the other programs.
// Empty if the system does not tell; then only PATH is searched.
fs::path own_path() {
  std::error_code error;
  fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : path;
}

// A name becomes part of a path, and must not lead to another folder.
bool is_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

bool is_program(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

// Folders to search. Relative folders of PATH are skipped, so that a program in the working directory never runs by
// accident.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  if (const fs::path own = own_path(); !own.empty()) {
    found.push_back(own.parent_path());
  }
  const char* variable = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): the only thread
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (fs::path folder = rest.substr(0, end); folder.is_absolute()) {
      found.push_back(std::move(folder));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

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

std::string external_help() {
  return fmt::format("Programs beside this one, bitsnap-NAME:\n  {:<32}{}\n\n", kReport.name, kReport.description);
}

std::optional<std::string> find_external(std::string_view name) {
  if (!is_name(name)) {
    return std::nullopt;
  }
  for (const fs::path& folder : folders()) {
    if (const fs::path path = folder / fmt::format("bitsnap-{}", name); is_program(path)) {
      return path.string();
    }
  }
  return std::nullopt;
}

Error run_external(const std::string& path, const char* const* arguments) {
  if (const fs::path own = own_path(); !own.empty()) {
    ::setenv("BITSNAP_COMMAND", own.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): the only thread
  }
  std::vector<char*> pointers = {const_cast<char*>(path.c_str())};  // execv() changes none of them
  for (; *arguments != nullptr; ++arguments) {
    pointers.push_back(const_cast<char*>(*arguments));
  }
  pointers.push_back(nullptr);
  ::execv(path.c_str(), pointers.data());
  const std::error_code error(errno, std::generic_category());
  return {ErrorKind::io, fmt::format("{}: cannot be run: {}", path, error.message())};
}

}  // namespace bitsnap::cli
