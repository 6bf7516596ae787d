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

#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/file_lock_posix.hpp"
#include "os/file_system.hpp"
#include "os/rename_posix.hpp"

namespace bitsnap::os {
namespace {

constexpr std::size_t kWriteBufferBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxTransferBytes = std::size_t{1} << 30;  // the system transfers at most 2 GiB in one call

class PosixReader final : public RandomAccessFile {
 public:
  PosixReader(Descriptor fd, std::uint64_t size_bytes, std::string path)
      : fd_(std::move(fd)), size_bytes_(size_bytes), path_(std::move(path)) {}

  Result<void> read_at(std::uint64_t offset, ByteSpan out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const std::uint64_t at = offset + done;
      if (at < offset || at > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
        return ends_early(offset, out.size(), 0);
      }
      const std::size_t wanted = std::min(out.size() - done, kMaxTransferBytes);
      const ssize_t got = ::pread(fd_.get(), out.data() + done, wanted, static_cast<off_t>(at));
      if (got == 0) return ends_early(offset, out.size(), done);
      if (got > 0) {
        done += static_cast<std::size_t>(got);
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
  tl::unexpected<Error> ends_early(std::uint64_t offset, std::size_t wanted, std::size_t got) const {
    return fail(ErrorKind::truncated, "read " + path_ + " at offset " + std::to_string(offset) + ": expected " +
                                          std::to_string(wanted) + " bytes, found " + std::to_string(got) +
                                          " before the end of the file");
  }

  Descriptor fd_;
  std::uint64_t size_bytes_;
  std::string path_;
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

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path, AccessPattern pattern) override {
    BITSNAP_TRY(check_path("open", path));
    // Non-blocking, so that a pipe without a writer is rejected below instead of waited for.
    Descriptor fd = open_descriptor(path.c_str(), O_RDONLY | O_NONBLOCK);
    if (!fd.is_open()) return fail_errno(errno, "open", path);
    struct ::stat info{};
    if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, "open", path);
    if (S_ISDIR(info.st_mode)) return fail_errno(EISDIR, "open", path);
    if (!S_ISREG(info.st_mode)) return fail(ErrorKind::invalid_argument, "open " + path + ": it is not a regular file");
    if (pattern == AccessPattern::sequential) ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
    return std::make_unique<PosixReader>(std::move(fd), static_cast<std::uint64_t>(info.st_size), path);
  }

  Result<std::unique_ptr<WritableFile>> create(const std::string& path, FileMode mode) override {
    BITSNAP_TRY(check_path("create", path));
    Descriptor fd = open_descriptor(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, static_cast<mode_t>(mode));
    if (!fd.is_open()) return fail_errno(errno, "create", path);
    return std::make_unique<PosixWriter>(std::move(fd), path);
  }

  Result<void> rename(const std::string& from, const std::string& to) override {
    BITSNAP_TRY(check_path("rename from", from));
    BITSNAP_TRY(check_path("rename to", to));
    if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno(errno, "rename " + from + " to", to);
    return {};
  }

  Result<void> rename_no_replace(const std::string& from, const std::string& to) override {
    BITSNAP_TRY(check_path("rename from", from));
    BITSNAP_TRY(check_path("rename to", to));
    const int error = os::rename_no_replace(from.c_str(), to.c_str());
    if (error != 0) return fail_errno(error, "rename " + from + " to", to);
    return {};
  }

  Result<void> link(const std::string& from, const std::string& to) override {
    BITSNAP_TRY(check_path("link from", from));
    BITSNAP_TRY(check_path("link to", to));
    if (::link(from.c_str(), to.c_str()) == 0) return {};
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
    BITSNAP_TRY(check_path("remove", path));
    if (std::remove(path.c_str()) != 0) return fail_errno(errno, "remove", path);
    return {};
  }

  Result<void> create_directory(const std::string& path, FileMode mode) override {
    BITSNAP_TRY(check_path("create directory", path));
    if (::mkdir(path.c_str(), static_cast<mode_t>(mode)) != 0) return fail_errno(errno, "create directory", path);
    return {};
  }

  Result<std::vector<std::string>> list_directory(const std::string& path) override {
    BITSNAP_TRY(check_path("list directory", path));
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
    if (directory == nullptr) return fail_errno(errno, "list directory", path);
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* const entry = ::readdir(directory.get());
      if (entry == nullptr) break;
      const std::string_view name(entry->d_name);
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return fail_errno(errno, "list directory", path);
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<FileInfo> stat(const std::string& path) override {
    BITSNAP_TRY(check_path("stat", path));
    struct ::stat info{};
    if (::stat(path.c_str(), &info) != 0) {
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

  Result<DirectorySync> sync_directory(const std::string& path) override {
    BITSNAP_TRY(check_path("sync directory", path));
    const Descriptor fd = open_descriptor(path.c_str(), O_RDONLY | O_DIRECTORY);
    if (!fd.is_open()) {
      // A directory that is writable but not readable cannot be opened, so it cannot be synced.
      if (errno == EACCES) return DirectorySync::unsupported;
      return fail_errno(errno, "sync directory", path);
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
    return lock_file(path, kind);
  }
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
  static PosixFileSystem* const file_system = new PosixFileSystem;  // never destroyed: files may be closed at exit
  return *file_system;
}

}  // namespace bitsnap::os
