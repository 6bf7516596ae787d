// Record locks (fcntl) over whole files, and a registry of the locks that this process holds.
//
// Record locks, because the system drops them with the process, does not pass them to a forked child, and keeps them on
// network file systems. But they do not exclude within a process, and the process loses all its locks on a file when it
// closes any descriptor of it. Hence the registry: it knows each locked file by device and inode, holds its only
// descriptor, and counts who shares it. One mutex over everything; a lock may be released by any thread.
#include "os/file_lock_posix.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/process.hpp"

namespace bitsnap::os {
namespace {

constexpr int kAttempts = 8;  // to lock a file whose holder lets go of it just before it can be named

using FileKey = std::pair<dev_t, ino_t>;

std::string operation_name(LockKind kind) { return kind == LockKind::exclusive ? "lock (exclusive)" : "lock (shared)"; }

tl::unexpected<Error> is_held_by(const std::string& holder, LockKind held, const std::string& path, LockKind wanted) {
  return fail(ErrorKind::busy, operation_name(wanted) + " " + path + ": " + holder +
                                   (held == LockKind::exclusive ? " holds it (exclusive)" : " holds it (shared)"));
}

struct HeldFile {
  LockKind kind;
  std::uint64_t holders = 0;
  // The first has the lock. The others met the same file under a path that had just changed its meaning; closing them
  // earlier would drop the lock.
  std::vector<Descriptor> descriptors;
};

// Of one process: a forked child begins with an empty one, because it inherits no lock. What it finds in its parent's
// it leaves alone: the parent's mutex may be locked for ever, and closing a descriptor would drop a lock of its own.
struct Registry {
  const std::int64_t process = process_id();
  std::mutex mutex;
  std::map<FileKey, HeldFile> files;
};

Registry& registry() {
  static std::atomic<Registry*> current{nullptr};
  Registry* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->process == process_id()) return *found;
  auto made = std::make_unique<Registry>();
  if (current.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *found;  // another thread was faster
}

class PosixLock final : public FileLock {
 public:
  PosixLock(Registry& registry, FileKey key) noexcept : registry_(registry), key_(std::move(key)) {}
  ~PosixLock() override {
    if (!is_held()) return;
    const std::lock_guard guard(registry_.mutex);
    const auto file = registry_.files.find(key_);
    if (--file->second.holders == 0) registry_.files.erase(file);
  }

  bool is_held() const noexcept override { return registry_.process == process_id(); }

 private:
  Registry& registry_;
  const FileKey key_;
};

// Joins the holders of a file in this process; the registry's mutex is held.
Result<std::unique_ptr<FileLock>> join(Registry& registry, const FileKey& key, HeldFile& file, const std::string& path,
                                       LockKind kind) {
  if (kind == LockKind::exclusive || file.kind == LockKind::exclusive) {
    return is_held_by("this process, " + std::to_string(registry.process) + ",", file.kind, path, kind);
  }
  auto lock = std::make_unique<PosixLock>(registry, key);
  ++file.holders;
  return lock;
}

Descriptor open_lock_file(const std::string& path, LockKind kind) noexcept {
  // Non-blocking, so that a pipe is refused by the caller and not waited for.
  Descriptor fd = open_descriptor(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK, kDefaultFileMode);
  if (fd.is_open() || kind == LockKind::exclusive) return fd;
  if (errno != EACCES && errno != EPERM && errno != EROFS) return fd;
  // To share a lock it is enough that the file may be read. What counts is why it could not be opened or made.
  const int error = errno;
  Descriptor read_only = open_descriptor(path.c_str(), O_RDONLY | O_NONBLOCK);
  if (!read_only.is_open()) errno = error;
  return read_only;
}

int set_lock(int fd, int command, struct ::flock& whole_file) noexcept {
  int result;
  do {
    result = ::fcntl(fd, command, &whole_file);  // of a network file system a signal may interrupt it
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

Result<void> acquire(int fd, const std::string& path, LockKind kind) {
  for (int attempt = 1;; ++attempt) {
    struct ::flock request{};  // from the beginning to the end, wherever that will be
    request.l_type = kind == LockKind::exclusive ? F_WRLCK : F_RDLCK;
    request.l_whence = SEEK_SET;
    struct ::flock holder = request;
    const int error = set_lock(fd, F_SETLK, request);
    if (error == 0) return {};
    if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) {
      return fail(ErrorKind::io, operation_name(kind) + " " + path + ": the file system has no locks");
    }
    if (error != EACCES && error != EAGAIN) {
      return tl::unexpected<Error>(errno_error(error, operation_name(kind), path));
    }
    if (set_lock(fd, F_GETLK, holder) != 0) holder.l_pid = 0;
    if (holder.l_type == F_UNLCK && attempt < kAttempts) continue;
    // On other machines and in other containers a process has no number here.
    const std::string name = holder.l_pid > 0 ? "process " + std::to_string(holder.l_pid) : "another process";
    return is_held_by(name, holder.l_type == F_RDLCK ? LockKind::shared : LockKind::exclusive, path, kind);
  }
}

}  // namespace

Result<std::unique_ptr<FileLock>> lock_file(const std::string& path, LockKind kind) {
  BITSNAP_TRY(check_path("lock", path));
  Registry& locks = registry();
  const std::lock_guard guard(locks.mutex);
  struct ::stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    const FileKey key(info.st_dev, info.st_ino);
    if (const auto held = locks.files.find(key); held != locks.files.end()) {
      return join(locks, key, held->second, path, kind);
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
      return fail(ErrorKind::invalid_argument, operation_name(kind) + " " + path + ": it is not a regular file");
    }
  }
  Descriptor fd = open_lock_file(path, kind);
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) {
    return tl::unexpected<Error>(errno_error(errno, operation_name(kind), path));
  }
  if (!S_ISREG(info.st_mode)) {
    return fail(ErrorKind::invalid_argument, operation_name(kind) + " " + path + ": it is not a regular file");
  }
  const FileKey key(info.st_dev, info.st_ino);
  if (const auto held = locks.files.find(key); held != locks.files.end()) {
    held->second.descriptors.push_back(std::move(fd));
    return join(locks, key, held->second, path, kind);
  }
  BITSNAP_TRY(acquire(fd.get(), path, kind));
  auto lock = std::make_unique<PosixLock>(locks, key);
  HeldFile& file = locks.files[key];
  file.kind = kind;
  file.holders = 1;
  file.descriptors.push_back(std::move(fd));
  return lock;
}

}  // namespace bitsnap::os
