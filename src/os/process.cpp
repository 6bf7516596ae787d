// Identity and priorities of this process, on Linux.
#include "os/process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/try.hpp"
#include "os/errno_error.hpp"

namespace bitsnap::os {

std::int64_t process_id() noexcept { return ::getpid(); }

std::uint32_t user_id() noexcept { return ::geteuid(); }

namespace {

// If Linux groups processes by session (autogroup), niceness counts only within the group, and the group has its own.
// This process may set it only if the session is its own: it started it, or the process that did is gone.
bool lower_session(int nice) {
  const pid_t session = ::getsid(0);
  if (session != ::getpid() && (session <= 0 || ::kill(session, 0) == 0 || errno != ESRCH)) return true;
  const int file = ::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT;
  const std::string text = std::to_string(nice);
  const bool is_done = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  ::close(file);
  errno = why;
  return is_done;
}

}  // namespace

std::vector<Error> lower_priority(int nice_increment) {
  constexpr int kNicest = 19;
  constexpr int kIoOfThread = 1;                      // IOPRIO_WHO_PROCESS
  constexpr int kIoLowestBestEffort = (2 << 13) | 7;  // in the idle class it might never get to write
  std::vector<Error> refused;
  const auto note = [&](bool done, const std::string& operation) {
    if (!done) refused.push_back(errno_error(errno, operation, "of this thread"));
  };
  const int nice = std::clamp(::getpriority(PRIO_PROCESS, 0) + std::max(nice_increment, 0), -20, kNicest);
  note(::setpriority(PRIO_PROCESS, 0, nice) == 0, "raise the niceness to " + std::to_string(nice));
  note(lower_session(nice), "lower the priority of the session");
  const sched_param parameters{};
  note(::sched_setscheduler(0, SCHED_BATCH, &parameters) == 0, "schedule as a batch the work");
  note(::syscall(SYS_ioprio_set, kIoOfThread, 0, kIoLowestBestEffort) == 0, "lower the priority of reads and writes");
  return refused;
}

Result<void> offer_to_end_first() {
  constexpr std::string_view kHighestScore = "1000";
  const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return fail_errno(errno, "open", "/proc/self/oom_score_adj");
  const bool is_done =
      ::write(file, kHighestScore.data(), kHighestScore.size()) == static_cast<::ssize_t>(kHighestScore.size());
  const int why = errno;
  ::close(file);
  if (!is_done) return fail_errno(why, "write", "/proc/self/oom_score_adj");
  return {};
}

}  // namespace bitsnap::os
