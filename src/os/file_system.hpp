// The seam between bitsnap and the files of the operating system: an interface, and the real thing behind it.
// file_system_fake.hpp has one in memory, file_system_faulty.hpp one that fails on request.
//
// Paths are bytes as the system takes them; relative ones start at the working directory. An error names the operation,
// the path and the system's reason. Its kind: not_found (no such file or directory), invalid_argument (already exists,
// is or is not a directory, no usable name), resource_exhausted (no memory), io (no space left, quota, descriptors),
// busy, io (everything else). A FileSystem may be used by several threads at once and outlives the files it opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::os {

// Permission bits of a new file before the process's umask is applied.
using FileMode = std::uint32_t;
inline constexpr FileMode kDefaultFileMode = 0666;
inline constexpr FileMode kDefaultDirectoryMode = 0777;

// How a file is going to be read; a hint for the system's read-ahead.
enum class AccessPattern : std::uint8_t { random, sequential };

// What stands at a path; symbolic links are followed.
struct FileInfo {
  bool exists = false;
  bool is_directory = false;
  bool is_regular = false;       // neither a directory nor a device, pipe or socket
  std::uint64_t size_bytes = 0;  // of a regular file
  // When the contents last changed, or the names in a directory, since the Unix epoch. As coarse as the file system's
  // clock: two changes within a few milliseconds may show the same time.
  std::int64_t modified_ns = 0;
  // Differs from that of everything else that stands on the same file system now; may be given again later.
  std::uint64_t file_id = 0;
};

// Whether the names in a directory are now safe from a crash, or the file system does not offer that.
enum class DirectorySync : std::uint8_t { done, unsupported };

// An open file, read at offsets. Thread-safe. Closed by the destructor.
class RandomAccessFile {
 public:
  RandomAccessFile() = default;
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  virtual ~RandomAccessFile() = default;

  // Fills `out` whole, or fails: truncated where the file ends before, io where the system refuses. After a failure the
  // contents of `out` are unspecified.
  [[nodiscard]] virtual Result<void> read_at(std::uint64_t offset, ByteSpan out) const = 0;

  // The size when the file was opened.
  [[nodiscard]] virtual std::uint64_t size_bytes() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
};

// A new file that is written from its beginning to its end. Belongs to one thread at a time.
//
// Errors are sticky: once an append, sync or close has failed, every later call fails with the same error, and nothing
// is tried again (after a failed sync the system may have dropped the very pages that it could not write).
// A file that is destroyed without close() is given up: what it holds then is unspecified.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile() = default;

  // Adds to the end. The bytes may wait in a buffer until sync() or close(), which then report the failure.
  [[nodiscard]] virtual Result<void> append(ConstByteSpan bytes) = 0;

  // Returns once everything appended, and the size, are safe from a crash of the machine. The file's name is safe only
  // after sync_directory() of its directory.
  [[nodiscard]] virtual Result<void> sync() = 0;

  // Hands everything to the system and closes; does not sync. Closing again returns the same result; anything else on a
  // closed file is invalid_argument.
  [[nodiscard]] virtual Result<void> close() = 0;

  // Bytes appended so far, buffered ones included.
  [[nodiscard]] virtual std::uint64_t size_bytes() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
};

// Whether a lock on a file may be held by several at once.
enum class LockKind : std::uint8_t { shared, exclusive };

// A lock on a file, released by the destructor, which any thread may run; and by the death of the process in any way,
// whatever children it has forked.
class FileLock {
 public:
  FileLock() = default;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  virtual ~FileLock() = default;

  // False in a child that was forked from the process that took the lock: it inherits none.
  [[nodiscard]] virtual bool is_held() const noexcept = 0;
};

class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  // A directory is invalid_argument, as is anything else that is not a regular file.
  [[nodiscard]] virtual Result<std::unique_ptr<RandomAccessFile>> open(
      const std::string& path, AccessPattern pattern = AccessPattern::random) = 0;

  // Makes a new file. Fails with invalid_argument if something stands there already.
  [[nodiscard]] virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                                     FileMode mode = kDefaultFileMode) = 0;

  // Moves a file or directory within one file system; atomic. A file replaces a file, a directory an empty directory.
  [[nodiscard]] virtual Result<void> rename(const std::string& from, const std::string& to) = 0;

  // The same, but fails with invalid_argument, and changes nothing, if something stands at `to`.
  [[nodiscard]] virtual Result<void> rename_no_replace(const std::string& from, const std::string& to) = 0;

  // Removes a file or an empty directory.
  [[nodiscard]] virtual Result<void> remove(const std::string& path) = 0;

  // Makes one directory; invalid_argument if something stands there already.
  [[nodiscard]] virtual Result<void> create_directory(const std::string& path,
                                                      FileMode mode = kDefaultDirectoryMode) = 0;

  // The names in a directory, without "." and "..", in byte order.
  [[nodiscard]] virtual Result<std::vector<std::string>> list_directory(const std::string& path) = 0;

  // A path where nothing stands is not an error.
  [[nodiscard]] virtual Result<FileInfo> stat(const std::string& path) = 0;

  // Makes the names in a directory safe from a crash of the machine: what was created, renamed or removed in it.
  [[nodiscard]] virtual Result<DirectorySync> sync_directory(const std::string& path) = 0;

  // Locks a file, without waiting; makes it if there is none. busy, and naming the holder where the system knows it, if
  // a lock is held, in this process or another, that excludes this one; io if the file system has no locks.
  //
  // The lock is on the file and not on the name, so nobody may remove or replace a lock file that is in use. A process
  // should not open() a file that it has locked: when it is closed others no longer learn who holds the lock, and where
  // the system has record locks only (before Linux 3.15, on some network file systems) it is released.
  [[nodiscard]] virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) = 0;
};

// The file system of this machine; lives as long as the process.
[[nodiscard]] FileSystem& real_file_system() noexcept;

// A relative path from the current directory of this process as it is now; others, and the empty one, as they are, and
// so all where the current directory is gone.
[[nodiscard]] std::string absolute_path(const std::string& path);

// One text for all spellings of a path: absolute, with what is there resolved through symbolic links, and with neither
// "." nor ".." nor a slash too many in it. Where the system does not say what a name leads to, as text alone.
[[nodiscard]] std::string canonical_path(const std::string& path);

// "a/b/c" -> "a/b", "/c" -> "/", "c" -> ".".
[[nodiscard]] std::string parent_directory(std::string_view path);

// "a/b/c" -> "c"; empty where the path ends in a slash.
[[nodiscard]] std::string_view file_name(std::string_view path) noexcept;

// "a", "b" -> "a/b"; an absolute `name` or an empty `directory` gives `name`.
[[nodiscard]] std::string join_path(std::string_view directory, std::string_view name);

// The whole of a file; resource_exhausted if it is longer than the limit.
[[nodiscard]] Result<std::vector<std::byte>> read_file(FileSystem& file_system, const std::string& path,
                                                       std::uint64_t limit_bytes);

}  // namespace bitsnap::os
