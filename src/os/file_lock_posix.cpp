// Each lock is two locks of the system, and an entry in a registry of this process.
//
// The first byte has a record lock (fcntl): the system releases it with the process, does not pass it to a forked
// child, supports it on network file systems, and tells who holds it. But it does not exclude threads of the same
// process, and it is lost when the process closes any descriptor of the file, for example by copying the directory.
// Therefore the registry knows each locked file by device and inode, holds its only descriptor, and counts its holders.
// The second byte has a lock of the open file description, which lasts until all descriptors of it are closed; a forked
// child closes those that it inherits. One mutex guards everything; any thread may release a lock.
#include "os/file_lock_posix.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "os/errno_error.hpp"
#include "os/process.hpp"

namespace bitsnap::os {
namespace {

constexpr int kAttempts = 8;  // if the holder releases the lock just before it can be named

using FileKey = std::pair<dev_t, ino_t>;

std::string operation_name(LockKind kind) { return kind == LockKind::exclusive ? "lock (exclusive)" : "lock (shared)"; }

// The owner of a lock: the commands that take and query it, and its byte. On the same byte the two would exclude each
// other.
struct LockOwner {
  int take;
  int ask;
  off_t byte;
};
constexpr LockOwner kProcess{F_SETLK, F_GETLK, 0};
constexpr LockOwner kOpenFile{F_OFD_SETLK, F_OFD_GETLK, 1};

tl::unexpected<Error> is_held_by(const std::string& holder, LockKind held, const std::string& path, LockKind wanted) {
  return fail(ErrorKind::busy, operation_name(wanted) + " " + path + ": " + holder +
                                   (held == LockKind::exclusive ? " holds it (exclusive)" : " holds it (shared)"));
}

struct HeldFile {
  LockKind kind;
  std::uint64_t holders = 0;
  // The first descriptor has the locks. The others were opened under a path that turned out to be the same file;
  // closing them earlier would drop the record lock.
  std::vector<Descriptor> descriptors;
};

// The registry of one process. A forked child starts with an empty one, because it inherits no lock. It does not touch
// its parent's, except that the descriptors in it are closed at the fork.
struct Registry {
  const std::int64_t process = process_id();
  std::mutex mutex;
  std::map<FileKey, HeldFile> files;
};

std::atomic<Registry*> current_registry{nullptr};

// The fork handlers hold the registry's mutex. An inherited descriptor would keep the lock of the open file alive as
// long as the child lives, even if the parent is killed; the child has no record lock that closing could drop. Against
// children made without these handlers (by clone() without exec) the parent unlocks explicitly.
thread_local Registry* forked_registry = nullptr;

void before_fork() {
  Registry* const found = current_registry.load(std::memory_order_acquire);
  forked_registry = found != nullptr && found->process == process_id() ? found : nullptr;
  if (forked_registry != nullptr) forked_registry->mutex.lock();
}

void after_fork_in_parent() {
  if (forked_registry != nullptr) forked_registry->mutex.unlock();
}

void after_fork_in_child() {
  if (forked_registry == nullptr) return;
  for (auto& [key, file] : forked_registry->files) {
    for (Descriptor& descriptor : file.descriptors) ::close(descriptor.release());
  }
  forked_registry->mutex.unlock();
}

Registry& registry() {
  Registry* found = current_registry.load(std::memory_order_acquire);
  if (found != nullptr && found->process == process_id()) return *found;
  const bool is_first = found == nullptr;
  auto made = std::make_unique<Registry>();
  if (!current_registry.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
    return *found;  // another thread was faster
  }
  // A child inherits the fork handlers.
  if (is_first) static_cast<void>(::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child));
  return *made.release();
}

int set_lock(int fd, int command, struct ::flock& byte) noexcept {
  int result;
  do {
    result = ::fcntl(fd, command, &byte);  // on a network file system a signal may interrupt it
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

struct ::flock request_for(const LockOwner& owner, short type) noexcept {
  struct ::flock request{};
  request.l_type = type;
  request.l_whence = SEEK_SET;
  request.l_start = owner.byte;
  request.l_len = 1;
  return request;
}

class PosixLock final : public FileLock {
 public:
  PosixLock(Registry& registry, FileKey key) noexcept : registry_(registry), key_(std::move(key)) {}
  ~PosixLock() override {
    if (!is_held()) return;
    const std::lock_guard guard(registry_.mutex);
    const auto file = registry_.files.find(key_);
    if (--file->second.holders > 0) return;
    struct ::flock request = request_for(kOpenFile, F_UNLCK);
    static_cast<void>(set_lock(file->second.descriptors.front().get(), kOpenFile.take, request));
    registry_.files.erase(file);
  }

  bool is_held() const noexcept override { return registry_.process == process_id(); }

 private:
  Registry& registry_;
  const FileKey key_;
};

// Adds a holder to a file that this process has locked. The caller holds the registry's mutex.
Result<std::unique_ptr<FileLock>> join(Registry& registry, const FileKey& key, HeldFile& file, const std::string& path,
                                       LockKind kind) {
  if (kind == LockKind::exclusive || file.kind == LockKind::exclusive) {
    return is_held_by("this process, " + std::to_string(registry.process) + ",", file.kind, path, kind);
  }
  auto lock = std::make_unique<PosixLock>(registry, key);
  ++file.holders;
  return lock;
}

Descriptor open_lock_file(const PathAt& at, LockKind kind) noexcept {
  // Non-blocking, so that the caller can reject a pipe instead of waiting for it.
  Descriptor fd = at.open(O_RDWR | O_CREAT | O_NONBLOCK, kDefaultFileMode);
  if (fd.is_open() || kind == LockKind::exclusive) return fd;
  if (errno != EACCES && errno != EPERM && errno != EROFS) return fd;
  // Read access is enough for a shared lock. Otherwise report why the file could not be opened or created.
  const int error = errno;
  Descriptor read_only = at.open(O_RDONLY | O_NONBLOCK);
  if (!read_only.is_open()) errno = error;
  return read_only;
}

bool is_refused(int error) noexcept { return error == EACCES || error == EAGAIN; }

// Returns an errno, or 0. `holder`: the process that holds the lock, as far as the system knows it.
int acquire_one(int fd, LockKind kind, const LockOwner& owner, struct ::flock& holder) noexcept {
  for (int attempt = 1;; ++attempt) {
    struct ::flock request = request_for(owner, kind == LockKind::exclusive ? F_WRLCK : F_RDLCK);
    holder = request;
    const int error = set_lock(fd, owner.take, request);
    if (!is_refused(error)) return error;
    if (set_lock(fd, owner.ask, holder) != 0) holder.l_pid = 0;
    if (holder.l_type != F_UNLCK || attempt == kAttempts) return error;
  }
}

Result<void> acquire(int fd, const std::string& path, LockKind kind) {
  struct ::flock holder{};
  int error = acquire_one(fd, kind, kProcess, holder);
  if (error == 0) {
    error = acquire_one(fd, kind, kOpenFile, holder);
    // Without locks of the open file, the record lock is the only one.
    if (error == EINVAL || error == EOPNOTSUPP || error == ENOSYS) return {};
  }
  if (error == 0) return {};
  if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) {
    return fail(ErrorKind::io, operation_name(kind) + " " + path + ": the file system has no locks");
  }
  if (!is_refused(error)) return fail_errno(error, operation_name(kind), path);
  // Processes on other machines or in other containers have no number here, nor have locks of open files.
  const std::string name = holder.l_pid > 0 ? "process " + std::to_string(holder.l_pid) : "another process";
  return is_held_by(name, holder.l_type == F_RDLCK ? LockKind::shared : LockKind::exclusive, path, kind);
}

}  // namespace

Result<std::unique_ptr<FileLock>> lock_file(const PathAt& at, const std::string& path, LockKind kind) {
  Registry& locks = registry();
  const std::lock_guard guard(locks.mutex);
  struct ::stat info{};
  const int status = call_again([&] { return ::fstatat(at.directory(), at.name(), &info, at.stat_flags()); });
  if (status == 0 && !S_ISLNK(info.st_mode)) {
    const FileKey key(info.st_dev, info.st_ino);
    if (const auto held = locks.files.find(key); held != locks.files.end()) {
      return join(locks, key, held->second, path, kind);
    }
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
      return fail(ErrorKind::invalid_argument, operation_name(kind) + " " + path + ": it is not a regular file");
    }
  }
  Descriptor fd = open_lock_file(at, kind);
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) return at.fail_open(errno, operation_name(kind), path, "a file");
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
