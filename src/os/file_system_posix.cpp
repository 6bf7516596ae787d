// The real file system, on Linux.
//
// System calls that a signal interrupts are retried. Small appends are buffered; large ones bypass the buffer.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "os/descriptor.hpp"
#include "os/errno_error.hpp"
#include "os/file_lock_posix.hpp"
#include "os/file_system.hpp"
#include "os/path_at_posix.hpp"
#include "os/rename_posix.hpp"

namespace bitsnap::os {
namespace {

constexpr std::size_t kWriteBufferBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxTransferBytes = std::size_t{1} << 30;  // the system transfers at most 2 GiB in one call

class PosixReader final : public RandomAccessFile {
 public:
  // No links are followed below `root`.
  PosixReader(Descriptor fd, std::uint64_t size_bytes, std::string path, std::string root)
      : fd_(std::move(fd)), size_bytes_(size_bytes), path_(std::move(path)), root_(std::move(root)) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    std::size_t done = 0;
    Descriptor reopened;
    while (done < out.size()) {
      const std::uint64_t at = offset + done;
      if (at < offset || at > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
        return ends_early(offset, out.size(), 0);
      }
      const std::size_t wanted = std::min(out.size() - done, kMaxTransferBytes);
      const int fd = reopened.is_open() ? reopened.get() : fd_.get();
      const ssize_t got = ::pread(fd, out.data() + done, wanted, static_cast<off_t>(at));
      if (got == 0) return ends_early(offset, out.size(), done);
      if (got > 0) {
        done += static_cast<std::size_t>(got);
      } else if (errno == ESTALE && !reopened.is_open()) {
        BITSNAP_ASSIGN(reopened, reopen());
      } else if (errno != EINTR) {
        return fail_errno(
            errno, "read " + std::to_string(out.size()) + " bytes at offset " + std::to_string(offset) + " of", path_);
      }
    }
    return {};
  }

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return path_; }

 private:
  // The server of a network file system has forgotten the open file, as after it was started again. The name leads to
  // it again; a file of another size is another one.
  Result<Descriptor> reopen() const {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("reopen", path_, root_));
    Descriptor fd = at.open(O_RDONLY | O_NONBLOCK);
    struct ::stat info{};
    if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) return fail_errno(errno, "reopen", path_);
    if (S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == size_bytes_) return fd;
    return fail_errno(ESTALE, "read", path_);
  }

  tl::unexpected<Error> ends_early(std::uint64_t offset, std::size_t wanted, std::size_t got) const {
    return fail(ErrorKind::truncated, "read " + path_ + " at offset " + std::to_string(offset) + ": expected " +
                                          std::to_string(wanted) + " bytes, found " + std::to_string(got) +
                                          " before the end of the file");
  }

  Descriptor fd_;
  std::uint64_t size_bytes_;
  std::string path_;
  std::string root_;
};

class PosixWriter final : public WritableFile {
 public:
  PosixWriter(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<void> append(ConstByteSpan bytes) override {
    BITSNAP_TRY(usable("append to"));
    size_bytes_ += bytes.size();
    if (bytes.size() >= kWriteBufferBytes - buffered_) BITSNAP_TRY(flush());
    if (bytes.size() >= kWriteBufferBytes) return write_through(bytes);
    if (bytes.empty()) return {};
    if (buffer_ == nullptr) {
      buffer_.reset(new (std::nothrow) std::byte[kWriteBufferBytes]);
      if (buffer_ == nullptr) return write_through(bytes);
    }
    std::memcpy(buffer_.get() + buffered_, bytes.data(), bytes.size());
    buffered_ += bytes.size();
    return {};
  }

  Result<void> sync() override {
    BITSNAP_TRY(usable("sync"));
    BITSNAP_TRY(flush());
    int result;
    do {
      result = ::fdatasync(fd_.get());  // after an interruption no failure was reported yet
    } while (result != 0 && errno == EINTR);
    if (result != 0) return stick(errno, "sync");
    return {};
  }

  Result<void> close() override {
    if (error_) return tl::unexpected<Error>(*error_);
    if (!fd_.is_open()) return {};
    Result<void> flushed = flush();
    buffer_.reset();
    // The descriptor is closed whatever close() returns, so it must not be closed again after an interruption.
    if (::close(fd_.release()) != 0 && errno != EINTR && flushed) return stick(errno, "close");
    return flushed;
  }

  std::uint64_t size_bytes() const noexcept override { return size_bytes_; }
  const std::string& path() const noexcept override { return path_; }

 private:
  Result<void> usable(std::string_view operation) const {
    if (error_) return tl::unexpected<Error>(*error_);
    if (!fd_.is_open()) {
      return fail(ErrorKind::invalid_argument, std::string(operation) + " " + path_ + ": it is closed");
    }
    return {};
  }

  tl::unexpected<Error> stick(int error, std::string_view operation) {
    error_ = errno_error(error, operation, path_);
    return tl::unexpected<Error>(*error_);
  }

  Result<void> flush() {
    const ConstByteSpan waiting(buffer_.get(), std::exchange(buffered_, 0));
    return write_through(waiting);
  }

  Result<void> write_through(ConstByteSpan bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxTransferBytes));
      if (written > 0) {
        bytes = bytes.subspan(static_cast<std::size_t>(written));
      } else if (written == 0) {
        return stick(EIO, "write");
      } else if (errno != EINTR) {
        return stick(errno, "write");
      }
    }
    return {};
  }

  Descriptor fd_;
  std::string path_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t buffered_ = 0;
  std::uint64_t size_bytes_ = 0;
  std::optional<Error> error_;
};

// Returns -1, with errno set, if it fails.
int list_names(Descriptor fd, std::vector<std::string>& names) {
  names.clear();
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(fd.get()), ::closedir);
  if (directory == nullptr) return -1;
  static_cast<void>(fd.release());  // closedir() closes it
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) return errno == 0 ? 0 : -1;
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

class PosixFileSystem final : public FileSystem {
 public:
  // No links are followed below `root`; if it is empty, everywhere.
  explicit PosixFileSystem(std::string root) : root_(std::move(root)) {}

  std::shared_ptr<FileSystem> without_links(const std::string& root) override {
    return std::make_shared<PosixFileSystem>(root);
  }

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path, AccessPattern pattern) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("open", path, root_));
    // Non-blocking, so that a pipe without a writer is rejected below instead of waited for.
    Descriptor fd = at.open(O_RDONLY | O_NONBLOCK);
    if (!fd.is_open()) return at.fail_open(errno, "open", path, "a file");
    struct ::stat info{};
    if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, "open", path);
    if (S_ISDIR(info.st_mode)) return fail_errno(EISDIR, "open", path);
    if (!S_ISREG(info.st_mode)) return fail(ErrorKind::invalid_argument, "open " + path + ": it is not a regular file");
    if (pattern == AccessPattern::sequential) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    return std::make_unique<PosixReader>(std::move(fd), static_cast<std::uint64_t>(info.st_size), path, root_);
  }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path, FileMode mode) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("create", path, root_));
    Descriptor fd = at.open(O_WRONLY | O_CREAT | O_EXCL, static_cast<mode_t>(mode));
    if (!fd.is_open()) return fail_errno(errno, "create", path);
    return std::make_unique<PosixWriter>(std::move(fd), path);
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    BITSNAP_ASSIGN(const PathAt source, PathAt::find("rename from", from, root_));
    BITSNAP_ASSIGN(const PathAt target, PathAt::find("rename to", to, root_));
    const auto rename = [&] {
      return ::renameat(source.directory(), source.name(), target.directory(), target.name());
    };
    if (call_again(rename) != 0) return fail_errno(errno, "rename " + from + " to", to);
    return {};
  }

  Result<void> rename_no_replace(const std::string& from, const std::string& to) override {
    BITSNAP_ASSIGN(const PathAt source, PathAt::find("rename from", from, root_));
    BITSNAP_ASSIGN(const PathAt target, PathAt::find("rename to", to, root_));
    const int error = os::rename_no_replace({source.directory(), source.name()}, {target.directory(), target.name()});
    if (error != 0) return fail_errno(error, "rename " + from + " to", to);
    return {};
  }

  Result<void> link(const std::string& from, const std::string& to) override {
    BITSNAP_ASSIGN(const PathAt source, PathAt::find("link from", from, root_));
    BITSNAP_ASSIGN(const PathAt target, PathAt::find("link to", to, root_));
    const auto link = [&] { return ::linkat(source.directory(), source.name(), target.directory(), target.name(), 0); };
    if (call_again(link) == 0) return {};
    Error error = errno_error(errno, "link " + from + " to", to);
    switch (errno) {
      case EPERM:
      case EXDEV:
      case EMLINK:
      case EOPNOTSUPP:
      case ENOSYS: return fail(ErrorKind::unsupported, error.message());
      default: return tl::unexpected(std::move(error));
    }
  }

  Result<void> remove(const std::string& path) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("remove", path, root_));
    const auto unlink = [&](int flags) {
      return call_again([&] { return ::unlinkat(at.directory(), at.name(), flags); }) == 0;
    };
    if (unlink(0) || (errno == EISDIR && unlink(AT_REMOVEDIR))) return {};
    return fail_errno(errno, "remove", path);
  }

  Result<void> create_directory(const std::string& path, FileMode mode) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("create directory", path, root_));
    const auto make = [&] { return ::mkdirat(at.directory(), at.name(), static_cast<mode_t>(mode)); };
    if (call_again(make) != 0) return fail_errno(errno, "create directory", path);
    return {};
  }

  Result<std::vector<std::string>> list_directory(const std::string& path) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("list directory", path, root_));
    std::vector<std::string> names;
    bool is_open = false;
    const auto list = [&] {
      Descriptor fd = at.open(O_RDONLY | O_DIRECTORY);
      is_open = fd.is_open();
      return is_open ? list_names(std::move(fd), names) : -1;
    };
    if (call_again(list) != 0) {
      if (!is_open) return at.fail_open(errno, "list directory", path, "a directory");
      return fail_errno(errno, "list directory", path);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Opens no directory on the way, which would take three times as long: see FileSystem::without_links().
  Result<FileInfo> stat(const std::string& path) override {
    BITSNAP_TRY(check_path("stat", path));
    struct ::stat info{};
    const int flags = is_below(path, root_) ? AT_SYMLINK_NOFOLLOW : 0;
    if (call_again([&] { return ::fstatat(AT_FDCWD, path.c_str(), &info, flags); }) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return FileInfo{};
      return fail_errno(errno, "stat", path);
    }
    FileInfo result;
    result.exists = true;
    result.is_directory = S_ISDIR(info.st_mode);
    result.is_regular = S_ISREG(info.st_mode);
    if (result.is_regular) result.size_bytes = static_cast<std::uint64_t>(info.st_size);
    result.modified_ns = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    result.file_id = info.st_ino;
    return result;
  }

  Result<void> check_writable(const std::string& path) override {
    BITSNAP_TRY(check_path("write to directory", path));
    if (call_again([&] { return ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS); }) == 0) return {};
    return fail_errno(errno, "write to directory", path);
  }

  Result<DirectorySync> sync_directory(const std::string& path) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("sync directory", path, root_));
    const Descriptor fd = at.open(O_RDONLY | O_DIRECTORY);
    if (!fd.is_open()) {
      // A directory that is writable but not readable cannot be opened, so it cannot be synced.
      if (errno == EACCES) return DirectorySync::unsupported;
      return at.fail_open(errno, "sync directory", path, "a directory");
    }
    int result;
    do {
      result = ::fsync(fd.get());
    } while (result != 0 && errno == EINTR);
    if (result == 0) return DirectorySync::done;
    if (errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS) return DirectorySync::unsupported;
    return fail_errno(errno, "sync directory", path);
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) override {
    BITSNAP_ASSIGN(const PathAt at, PathAt::find("lock", path, root_));
    return lock_file(at, path, kind);
  }

 private:
  const std::string root_;
};

}  // namespace

std::string absolute_path(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  const std::unique_ptr<char, void (*)(void*)> directory(::getcwd(nullptr, 0), std::free);
  // A directory outside the process's root has a name that is no path.
  if (directory == nullptr || directory.get()[0] != '/') return path;
  std::string_view rest = path;
  while (rest == "." || rest.starts_with("./")) {
    rest.remove_prefix(1);
    while (rest.starts_with('/')) rest.remove_prefix(1);
  }
  return rest.empty() ? std::string(directory.get()) : join_path(directory.get(), rest);
}

std::string canonical_path(const std::string& path) {
  if (path.empty()) return path;
  const std::string absolute = absolute_path(path);
  std::error_code error;
  std::filesystem::path resolved = std::filesystem::weakly_canonical(absolute, error);
  // After a name that does not exist, the first pass treats ".." as text and everything behind it as missing.
  if (!error) resolved = std::filesystem::weakly_canonical(resolved, error);
  if (error) resolved = std::filesystem::path(absolute).lexically_normal();
  std::string text = resolved.native();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

FileSystem& real_file_system() noexcept {
  static PosixFileSystem* const file_system = new PosixFileSystem("");  // never destroyed: files may be closed at exit
  return *file_system;
}

}  // namespace bitsnap::os
