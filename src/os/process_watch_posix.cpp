// Process descriptors (pidfd), by raw system calls: the C library that packages are built against lacks the functions.
#include "os/process_watch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>
#include <string_view>

#include "base/try.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/local_socket.hpp"
#include "os/poll_posix.hpp"

namespace bitsnap::os {
namespace {

// The same numbers on all architectures.
constexpr long kPidfdSendSignal = 424;
constexpr long kPidfdOpen = 434;
constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD

constexpr unsigned kBetweenLooksUs = 5000;

// The letter for the state of a process in /proc; '?' if it cannot be read.
char state_of(std::int64_t process) {
  const std::string path = "/proc/" + std::to_string(process) + "/stat";
  const Descriptor file = open_descriptor(path.c_str(), O_RDONLY);
  // "1234 (name) S ...": the name may have any characters, and at most 64 of them.
  char text[256];
  const ssize_t size = file.is_open() ? ::read(file.get(), text, sizeof(text)) : 0;
  const std::string_view stat(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  const std::size_t end = stat.rfind(") ");
  return end == std::string_view::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

// Whether there is a process of this number that is no zombie.
bool is_running(std::int64_t process) {
  if (::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH) return false;
  const char state = state_of(process);
  return state != 'Z' && state != 'X';
}

std::string name_of(std::int64_t process) { return "process " + std::to_string(process); }

tl::unexpected<Error> fail_not_found(std::string_view operation, std::int64_t process) {
  return fail(ErrorKind::not_found,
              std::string(operation) + " " + name_of(process) + ": there is none, or it has ended");
}

}  // namespace

ProcessWatch::ProcessWatch(Descriptor descriptor, std::int64_t process) noexcept
    : descriptor_(std::move(descriptor)), process_(process) {}

Result<ProcessWatch> ProcessWatch::open(std::int64_t process) {
  constexpr std::string_view kOperation = "watch";
  if (process <= 0 || process > std::numeric_limits<pid_t>::max()) return fail_not_found(kOperation, process);
  Descriptor fd(static_cast<int>(::syscall(kPidfdOpen, static_cast<pid_t>(process), 0)));
  if (!fd.is_open()) {
    // EINVAL, and since Linux 6.15 ENOENT: the number is that of a thread other than its process's first.
    if (errno == ESRCH || errno == EINVAL || errno == ENOENT) return fail_not_found(kOperation, process);
    if (!is_refused_call(errno)) return fail_errno(errno, kOperation, name_of(process));
  }
  ProcessWatch watch(std::move(fd), process);
  if (!watch.is_alive()) return fail_not_found(kOperation, process);
  return watch;
}

Result<ProcessWatch> ProcessWatch::open_peer(const LocalConnection& connection) {
  const std::int64_t process = connection.peer().process;
  int pidfd = -1;
  socklen_t size_bytes = sizeof(pidfd);
  if (::getsockopt(connection.descriptor(), SOL_SOCKET, kPeerPidfd, &pidfd, &size_bytes) != 0 || pidfd < 0) {
    return open(process);
  }
  ProcessWatch watch(Descriptor(pidfd), process);
  if (!watch.is_alive()) return fail_not_found("watch", process);
  return watch;
}

bool ProcessWatch::is_alive() const noexcept {
  if (!descriptor_.is_open()) return is_running(process_);
  return poll_one(descriptor_.get(), POLLIN, Deadline(0)) == ETIMEDOUT;
}

bool ProcessWatch::is_stopped() const {
  const char state = state_of(process_);
  return is_alive() && (state == 'T' || state == 't');
}

Result<bool> ProcessWatch::wait(std::int64_t timeout_ms) const {
  if (!descriptor_.is_open()) {
    const Deadline deadline(timeout_ms);
    while (is_running(process_)) {
      if (deadline.left_ms() == 0) return false;
      ::usleep(kBetweenLooksUs);
    }
    return true;
  }
  const int error = poll_one(descriptor_.get(), POLLIN, Deadline(timeout_ms));
  if (error == 0) return true;
  if (error == ETIMEDOUT) return false;
  return fail_errno(error, "wait for the end of", name_of(process_));
}

Result<void> ProcessWatch::send(int signal) const {
  constexpr std::string_view kOperation = "send a signal to";
  // Signals to a zombie succeed without effect.
  if (!is_alive()) return fail_not_found(kOperation, process_);
  if (descriptor_.is_open()) {
    if (::syscall(kPidfdSendSignal, descriptor_.get(), signal, nullptr, 0) == 0) return {};
  } else {
    errno = ENOSYS;
  }
  if (is_refused_call(errno) && ::kill(static_cast<pid_t>(process_), signal) == 0) return {};
  if (errno == ESRCH) return fail_not_found(kOperation, process_);
  return fail_errno(errno, kOperation, name_of(process_));
}

Result<void> ProcessWatch::ask_to_end() const { return send(SIGTERM); }
Result<void> ProcessWatch::kill() const { return send(SIGKILL); }

}  // namespace bitsnap::os
