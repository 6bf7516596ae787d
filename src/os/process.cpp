// Identity, priorities and usable threads of this process, on Linux.
#include "os/process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/try.hpp"
#include "os/cgroup.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/text_file.hpp"

namespace bitsnap::os {
namespace {

// In a container or under a batch system the hardware's number is too large.
unsigned affinity_cpus() {
  // The system's mask may be longer than cpu_set_t: grow until it takes ours.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> mask(sets);
    const std::size_t size_bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, size_bytes, mask.data()) == 0) {
      const int cpus = CPU_COUNT_S(size_bytes, mask.data());
      return static_cast<unsigned>(std::max(cpus, 1));
    }
    if (errno != EINVAL) break;
  }
  return std::max(std::thread::hardware_concurrency(), 1u);
}

// What the user allows in BITSNAP_THREADS; anything but a number above 0 has no effect.
std::optional<unsigned> allowed_threads() {
  const char* const variable = std::getenv("BITSNAP_THREADS");  // NOLINT(concurrency-mt-unsafe): read once
  const std::string_view text = variable != nullptr ? variable : "";
  unsigned threads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || end != text.data() + text.size() || threads == 0) return std::nullopt;
  return threads;
}

}  // namespace

unsigned usable_threads() {
  static const std::optional<unsigned> allowed = allowed_threads();
  const unsigned affinity = std::min(affinity_cpus(), allowed.value_or(std::numeric_limits<unsigned>::max()));
  // Once per process: the list of mounts takes longer to read than a small tensor.
  static const std::optional<unsigned> quota = cgroup_cpus(read_text_file);
  return std::max(1u, quota ? std::min(affinity, *quota) : affinity);
}

std::int64_t process_id() noexcept { return ::getpid(); }

std::string process_identity(std::int64_t process) {
  constexpr int kFieldsBeforeStart = 20;  // of /proc/PID/stat, after the name in parentheses
  const std::string stat = read_text_file("/proc/" + std::to_string(process) + "/stat").value_or("");
  std::string boot = read_text_file("/proc/sys/kernel/random/boot_id").value_or("");
  while (boot.ends_with('\n')) boot.pop_back();
  char space[64];
  const ssize_t space_size = ::readlink("/proc/self/ns/pid", space, sizeof(space));
  std::size_t begin = stat.rfind(") ");
  if (boot.empty() || space_size <= 0 || begin == std::string::npos) return {};
  begin += 2;
  if (begin < stat.size() && (stat[begin] == 'Z' || stat[begin] == 'X')) return {};
  for (int field = 0; field < kFieldsBeforeStart - 1 && begin != std::string::npos; ++field) {
    begin = stat.find(' ', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return {};
  return boot + " " + std::string(space, static_cast<std::size_t>(space_size)) + " " +
         stat.substr(begin, stat.find(' ', begin) - begin);
}

std::string machine_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) != 0) return "unknown";
  return name;
}

std::uint32_t user_id() noexcept { return ::geteuid(); }

void use_umask_of(std::int64_t process) {
  const std::optional<std::string> status = read_text_file("/proc/" + std::to_string(process) + "/status");
  const std::optional<std::string_view> line = status ? find_line(*status, "Umask:\t") : std::nullopt;
  unsigned mask = 0;
  if (!line || std::from_chars(line->data(), line->data() + line->size(), mask, 8).ec != std::errc()) return;
  static_cast<void>(::umask(static_cast<mode_t>(mask)));
}

Result<void> lower_io_priority() {
  constexpr int kIoOfThread = 1;                      // IOPRIO_WHO_PROCESS
  constexpr int kIoLowestBestEffort = (2 << 13) | 7;  // in the idle class it might never get to write
  if (::syscall(SYS_ioprio_set, kIoOfThread, 0, kIoLowestBestEffort) == 0) return {};
  return fail_errno(errno, "lower the priority of reads and writes", "of this thread");
}

std::vector<Error> lower_priority(int nice_increment) {
  constexpr int kNicest = 19;
  std::vector<Error> refused;
  const auto note = [&](bool done, const std::string& operation) {
    if (!done) refused.push_back(errno_error(errno, operation, "of this thread"));
  };
  const int nice = std::clamp(::getpriority(PRIO_PROCESS, 0) + std::max(nice_increment, 0), -20, kNicest);
  note(::setpriority(PRIO_PROCESS, 0, nice) == 0, "raise the niceness to " + std::to_string(nice));
  const sched_param parameters{};
  note(::sched_setscheduler(0, SCHED_BATCH, &parameters) == 0, "schedule as a batch the work");
  if (auto lowered = lower_io_priority(); !lowered) refused.push_back(std::move(lowered).error());
  return refused;
}

Result<void> offer_to_end_first() {
  const std::string path = "/proc/self/oom_score_adj";
  constexpr std::string_view kHighestScore = "1000";
  const Descriptor file = open_descriptor(path.c_str(), O_WRONLY);
  const bool is_done = file.is_open() && ::write(file.get(), kHighestScore.data(), kHighestScore.size()) ==
                                             static_cast<ssize_t>(kHighestScore.size());
  if (!is_done) return fail_errno(errno, "write", path);
  return {};
}

Result<void> set_session_niceness(int nice) {
  // The session is this process's own if it started it, or if the process that did is gone.
  const pid_t session = ::getsid(0);
  if (session != ::getpid() && (session <= 0 || ::kill(session, 0) == 0 || errno != ESRCH)) return {};
  const std::string path = "/proc/self/autogroup";
  const Descriptor file = open_descriptor(path.c_str(), O_WRONLY);
  if (!file.is_open() && errno == ENOENT) return {};
  const std::string text = std::to_string(nice);
  const bool is_done =
      file.is_open() && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!is_done) return fail_errno(errno, "set the niceness of the session in", path);
  return {};
}

}  // namespace bitsnap::os
