// Makes two processes, one from the other, that share this one's memory until they run a program or end, like
// posix_spawn(); the calling thread stops meanwhile. The first one becomes the session leader, the second one the
// program, which is no process's child once the first has ended.
//
// A fork would copy a trainer's page tables and mark all of its memory copy-on-write: half a second of page faults for
// each gibibyte. While memory is shared, the code makes system calls only, and writes nothing but its own stacks and
// errno. The caller may have many threads, and signal handlers, which do not run meanwhile.
#include "os/process_start.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <new>
#include <string_view>

#include "base/try.hpp"
#include "os/descriptor_closing_posix.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/file_system.hpp"
#include "os/poll_posix.hpp"

// Sanitizers do not support two processes in one address space.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BITSNAP_SHARES_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define BITSNAP_SHARES_MEMORY 0
#endif
#endif
#ifndef BITSNAP_SHARES_MEMORY
#define BITSNAP_SHARES_MEMORY 1
#endif

namespace bitsnap::os {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr int kReportFd = 3;           // after standard input, output and error
constexpr int kLowestFreeFd = 10;      // descriptors that move to 0 to 3 come from above them
constexpr int kExecTimeoutMs = 10000;  // for a loaded machine, if memory is not shared

// What either process reports through the pipe.
struct Report {
  pid_t process;
  int error;
};

struct Start {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input;
  int output;
  int report;
  std::byte* second_stack;
};

using Body = int (*)(void*);

// Starts a process that runs `body`. Returns its number or minus an errno. Its end sends no signal; only waiting for it
// returns it.
pid_t start_process(Body body, Start& start, [[maybe_unused]] std::byte* stack) noexcept {
#if BITSNAP_SHARES_MEMORY
  const pid_t process = ::clone(body, stack + kStackBytes, CLONE_VM | CLONE_VFORK, &start);
#else
  const pid_t process = ::fork();  // sends SIGCHLD at its end, which is harmless in a test
  if (process == 0) ::_exit(body(&start));
#endif
  return process >= 0 ? process : -errno;
}

void say(int fd, pid_t process, int error) noexcept {
  const Report report{process, error};
  while (::write(fd, &report, sizeof(report)) < 0 && errno == EINTR) {
  }
}

void reset_signals() noexcept {
  struct ::sigaction by_default{};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &by_default, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

int run_program(void* argument) {
  const Start& start = *static_cast<const Start*>(argument);
  int report = start.report;
  if (::chdir("/") == 0 && ::dup2(start.input, 0) == 0 && ::dup2(start.output, 1) == 1 &&
      ::dup2(start.output, 2) == 2 && ::dup2(start.report, kReportFd) == kReportFd &&
      ::fcntl(kReportFd, F_SETFD, FD_CLOEXEC) == 0) {
    report = kReportFd;
    close_descriptors_from(kReportFd + 1);
    reset_signals();
    ::execve(start.program, start.arguments, start.environment);
  }
  say(report, 0, errno);
  return 127;
}

int run_session(void* argument) {
  Start& start = *static_cast<Start*>(argument);
  const pid_t process = ::setsid() < 0 ? -errno : start_process(run_program, start, start.second_stack);
  say(start.report, process, process < 0 ? -process : 0);
  return 0;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> variables;
  const auto is_replaced = [&](std::string_view variable) {
    const std::string_view name = variable.substr(0, variable.find('='));
    for (const std::string_view addition : additions) {
      if (addition.substr(0, addition.find('=')) == name) return true;
    }
    return false;
  };
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    if (!is_replaced(*variable)) variables.emplace_back(*variable);
  }
  variables.insert(variables.end(), additions.begin(), additions.end());
  return variables;
}

// Blocks all signals of this thread while the object exists.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// The program's process number, or minus the errno that prevented it.
pid_t read_reports(int fd) noexcept {
  pid_t process = -EIO;
  for (;;) {
    // With shared memory everything is reported by now. Otherwise the pipe ends when the program runs.
    const Deadline deadline(BITSNAP_SHARES_MEMORY ? 0 : kExecTimeoutMs);
    if (poll_one(fd, POLLIN, deadline) != 0) return process;
    Report report{};
    const ssize_t got = ::read(fd, &report, sizeof(report));
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof(report)) return process;
    if (report.error != 0) return -report.error;
    process = report.process;
  }
}

}  // namespace

Result<std::int64_t> start_detached(const DetachedProgram& program) {
  BITSNAP_TRY(check_path("start", program.program));
  const std::string path = absolute_path(program.program);
  const auto fail_start = [&](int error) { return fail_errno(error, "start", path); };
  std::vector<std::string> argument_texts{path};
  argument_texts.insert(argument_texts.end(), program.arguments.begin(), program.arguments.end());
  const std::vector<std::string> environment_texts = environment_with(program.environment);
  const std::vector<char*> arguments = pointers_to(argument_texts);
  const std::vector<char*> environment = pointers_to(environment_texts);

  Descriptor input = open_descriptor("/dev/null", O_RDWR);
  if (!input.is_open()) return fail_start(errno);
  const std::string log_path = program.log_path.empty() ? "/dev/null" : program.log_path;
  BITSNAP_TRY(check_path("open the log", log_path));
  Descriptor output = open_descriptor(log_path.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (!output.is_open()) return fail_errno(errno, "open the log", log_path);
  auto [reports, report] = open_pipe(O_CLOEXEC);
  if (!reports.is_open()) return fail_start(errno);
  for (Descriptor* const moved : {&input, &output, &report}) {
    *moved = duplicate_descriptor(moved->get(), kLowestFreeFd);
    if (!moved->is_open()) return fail_start(errno);
  }
  const std::unique_ptr<std::byte[]> stacks(new (std::nothrow) std::byte[2 * kStackBytes]);
  if (stacks == nullptr) return fail_start(ENOMEM);

  Start start{path.c_str(), arguments.data(), environment.data(),        input.get(),
              output.get(), report.get(),     stacks.get() + kStackBytes};
  {
    const SignalsBlocked blocked;
    const pid_t session = start_process(run_session, start, stacks.get());
    if (session < 0) return fail_start(-session);
    // __WALL, because its end sends no signal. If another thread waited for it first, it has ended as well.
    while (::waitpid(session, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  report.close();
  const pid_t process = read_reports(reports.get());
  if (process < 0) return fail_start(-process);
  return process;
}

}  // namespace bitsnap::os
