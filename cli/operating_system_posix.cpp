// Terminal, signals, priority, files and external commands on POSIX systems. External commands are called by the main
// thread before it starts other threads.
#include "cli/operating_system.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

volatile std::sig_atomic_t g_signal = 0;

void on_signal(int signal) { g_signal = signal; }

namespace fs = std::filesystem;

constexpr std::int64_t kNanoseconds = 1'000'000'000;

std::int64_t nanoseconds_of(const timespec& time) { return time.tv_sec * kNanoseconds + time.tv_nsec; }

NodeKind node_kind(unsigned mode) {
  if (S_ISREG(mode)) return NodeKind::file;
  if (S_ISDIR(mode)) return NodeKind::directory;
  return S_ISLNK(mode) ? NodeKind::symbolic_link : NodeKind::other;
}

tl::unexpected<Error> fail_with_errno(int number, const std::string& path, std::string_view what) {
  const auto kind = number == ENOENT || number == ENOTDIR ? ErrorKind::not_found : ErrorKind::io;
  return fail(kind, fmt::format("{}: {}: {}", path, what, std::error_code(number, std::generic_category()).message()));
}

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
  if (const fs::path own = own_path(); !own.empty()) found.push_back(own.parent_path());
  const char* variable = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): the only thread
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (fs::path folder = rest.substr(0, end); folder.is_absolute()) found.push_back(std::move(folder));
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

bool wants_color() noexcept {
  const char* const none = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): the only thread
  const char* const terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): likewise
  return (none == nullptr || *none == '\0') && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), GRND_NONBLOCK) == static_cast<ssize_t>(sizeof(number))) return number;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<std::uint64_t>(::getpid()) << 40) ^ (static_cast<std::uint64_t>(now.tv_sec) << 30) ^
         static_cast<std::uint64_t>(now.tv_nsec);
}

void open_standard_streams() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1 && ::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd) return;
  }
}

void catch_interrupts() noexcept {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    if (::sigaction(signal, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_handler = on_signal;
    // Reset: the second one ends the process. Restart: no system call of the library fails for this.
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

void ignore_file_size_signal() noexcept { ::signal(SIGXFSZ, SIG_IGN); }

int interrupt_signal() noexcept { return g_signal; }

void lower_priority() noexcept {
  constexpr int kNice = 10;
  static_cast<void>(::setpriority(PRIO_PROCESS, 0, std::min(::getpriority(PRIO_PROCESS, 0) + kNice, 19)));
#ifdef SYS_ioprio_set
  constexpr int kIoOfThread = 1;    // IOPRIO_WHO_PROCESS
  constexpr int kIoIdle = 3 << 13;  // IOPRIO_CLASS_IDLE
  static_cast<void>(::syscall(SYS_ioprio_set, kIoOfThread, 0, kIoIdle));
#endif
}

Result<std::optional<FileFacts>> read_facts(const std::string& path) {
  struct ::stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<FileFacts>();
    return fail_with_errno(errno, path, "cannot be examined");
  }
  constexpr std::uint32_t kPermissions = 07777;
  FileFacts facts;
  facts.kind = node_kind(info.st_mode);
  facts.mode = info.st_mode & kPermissions;
  facts.size_bytes = facts.kind == NodeKind::file ? static_cast<std::uint64_t>(info.st_size) : 0;
  facts.modified_ns = nanoseconds_of(info.st_mtim);
  facts.changed_ns = nanoseconds_of(info.st_ctim);
  facts.device = info.st_dev;
  facts.inode = info.st_ino;
  facts.links = info.st_nlink;
  return facts;
}

Result<void> rename_no_replace(const std::string& from, const std::string& to) {
  int failed = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ? 0 : errno;
  // The file system has no such rename. A hard link, too, replaces nothing; nor does a rename of a folder.
  if (failed == EINVAL || failed == ENOSYS) {
    BITSNAP_ASSIGN(const auto facts, read_facts(from));
    if (facts && facts->kind == NodeKind::directory) {
      failed = ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
    } else {
      failed = ::link(from.c_str(), to.c_str()) == 0 && ::unlink(from.c_str()) == 0 ? 0 : errno;
    }
  }
  return failed == 0 ? Result<void>() : fail_with_errno(failed, from, "cannot be renamed to " + to);
}

Result<void> sync_file_system(const std::string& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return fail_with_errno(errno, path, "cannot be opened");
  const int failed = ::syncfs(directory) == 0 ? 0 : errno;
  ::close(directory);
  return failed == 0 ? Result<void>() : fail_with_errno(failed, path, "cannot be synced");
}

std::int64_t process_number() noexcept { return ::getpid(); }

std::string external_help() {
  return fmt::format("Programs beside this one, bitsnap-NAME:\n  {:<32}{}\n\n", kReport.name, kReport.description);
}

std::optional<std::string> find_external(std::string_view name) {
  if (!is_name(name)) return std::nullopt;
  for (const fs::path& folder : folders()) {
    if (const fs::path path = folder / fmt::format("bitsnap-{}", name); is_program(path)) return path.string();
  }
  return std::nullopt;
}

Error run_external(const std::string& path, const char* const* arguments) {
  if (const fs::path own = own_path(); !own.empty()) {
    ::setenv("BITSNAP_COMMAND", own.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): the only thread
  }
  std::vector<char*> pointers = {const_cast<char*>(path.c_str())};  // execv() changes none of them
  for (; *arguments != nullptr; ++arguments) pointers.push_back(const_cast<char*>(*arguments));
  pointers.push_back(nullptr);
  ::execv(path.c_str(), pointers.data());
  const std::error_code error(errno, std::generic_category());
  return {ErrorKind::io, fmt::format("{}: cannot be run: {}", path, error.message())};
}

}  // namespace bitsnap::cli
