// Ownership and rights are checked without following links. In a directory with the sticky bit, such as /tmp, nobody
// else can then replace or rename the private one.
#include "os/private_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/try.hpp"
#include "os/clock.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/file_system.hpp"
#include "os/process.hpp"

namespace bitsnap::os {
namespace {

constexpr std::array<std::string_view, 3> kSharedDirectories = {"/tmp", "/dev/shm", "/var/tmp"};
constexpr auto kBetweenDirectoryLocks = std::chrono::milliseconds(1);

std::string first_choice(std::string_view above) { return join_path(above, "bitsnap-" + std::to_string(user_id())); }

bool is_private(const std::string& path) {
  struct ::stat info{};
  const int result = call_again([&] { return ::lstat(path.c_str(), &info); });
  return result == 0 && S_ISDIR(info.st_mode) && info.st_uid == user_id() && (info.st_mode & 077u) == 0;
}

}  // namespace

std::span<const std::string_view> shared_directories() noexcept { return kSharedDirectories; }

std::optional<std::string> find_private_directory(std::string_view above) {
  std::string first = first_choice(above);
  if (is_private(first)) return first;
  // In byte order, so that all processes find the same one.
  const auto names = real_file_system().list_directory(std::string(above));
  if (!names) return std::nullopt;
  const std::string start = std::string(file_name(first)) + "-";
  for (const std::string& name : *names) {
    if (!name.starts_with(start)) continue;
    if (std::string path = join_path(above, name); is_private(path)) return path;
  }
  return std::nullopt;
}

Result<std::string> make_private_directory(std::string_view above) {
  if (auto found = find_private_directory(above)) return *std::move(found);
  const std::string first = first_choice(above);
  if (::mkdir(first.c_str(), 0700) != 0) {
    if (errno != EEXIST) return fail_errno(errno, "create directory", first);
    // It belongs to another user, or another process of this one was faster.
    std::string other = first + "-XXXXXX";
    if (!is_private(first) && ::mkdtemp(other.data()) == nullptr) return fail_errno(errno, "create directory", other);
  }
  // The same one as every other process finds from now on, also if several were created.
  if (auto found = find_private_directory(above)) return *std::move(found);
  return fail(ErrorKind::io, "create directory " + first + ": it does not belong to this user alone");
}

Result<Descriptor> lock_directory(const std::string& directory, std::int64_t timeout_ms) {
  Descriptor fd = open_descriptor(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd.is_open()) return fail_errno(errno, "lock directory", directory);
  const Deadline deadline(timeout_ms);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock directory", directory);
    if (deadline.left_ms() == 0) {
      return fail(ErrorKind::busy, "lock directory " + directory + ": another process of this user held it for " +
                                       std::to_string(timeout_ms) + " ms");
    }
    std::this_thread::sleep_for(kBetweenDirectoryLocks);
  }
  return fd;
}

}  // namespace bitsnap::os
