// Memory accounting from /proc/self/status.
#include "os/memory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "base/try.hpp"
#include "os/errno_error.hpp"
#include "os/text_file.hpp"

namespace bitsnap::os {
namespace {

// "VmRSS:\t    1234 kB\n" -> 1234 * 1024
std::optional<std::uint64_t> status_bytes(std::string_view status, std::string_view field) {
  const std::string start = "\n" + std::string(field) + ":";
  const std::size_t found = status.find(start);
  if (found == std::string_view::npos) return std::nullopt;
  std::string_view value = status.substr(found + start.size());
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  std::uint64_t kibibytes = 0;
  if (std::from_chars(value.data(), value.data() + value.size(), kibibytes).ec != std::errc()) return std::nullopt;
  return kibibytes * 1024;
}

}  // namespace

Result<ProcessMemory> process_memory() {
  const std::optional<std::string> status = read_text_file("/proc/self/status");
  if (!status) return fail(ErrorKind::unsupported, "memory of this process: /proc/self/status cannot be read");
  const std::optional<std::uint64_t> resident = status_bytes(*status, "VmRSS");
  const std::optional<std::uint64_t> peak = status_bytes(*status, "VmHWM");
  const std::optional<std::uint64_t> anonymous = status_bytes(*status, "RssAnon");
  if (!resident || !peak || !anonymous) {
    return fail(ErrorKind::unsupported, "memory of this process: /proc/self/status lacks VmRSS, VmHWM or RssAnon");
  }
  return ProcessMemory{*resident, *peak, *anonymous};
}

Result<void> reset_peak_resident() {
  const char* const path = "/proc/self/clear_refs";
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return fail(ErrorKind::unsupported,
                errno_error(errno, "reset the peak of resident memory through", path).message());
  }
  const ssize_t written = ::write(fd, "5", 1);
  const int error = errno;
  ::close(fd);
  if (written == 1) return {};
  return tl::unexpected<Error>(errno_error(error, "reset the peak of resident memory through", path));
}

std::size_t page_size_bytes() noexcept {
  const long size = ::sysconf(_SC_PAGESIZE);
  return size > 0 ? static_cast<std::size_t>(size) : 4096;
}

}  // namespace bitsnap::os
