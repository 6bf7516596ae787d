// The interface between bitsnap and the files of the operating system, and its real implementation.
// file_system_fake.hpp has one in memory, file_system_faulty.hpp one that fails on request.
//
// Paths are bytes as the system takes them; relative paths start at the working directory. An error names the
// operation, the path and the system's reason. Error kinds: not_found (no such file or directory), invalid_argument
// (already exists, is or is not a directory, invalid name), resource_exhausted (no memory), busy, io (everything else,
// such as no space left, quota, descriptors). A FileSystem is thread-safe and must outlive the files it opened.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace bitsnap::os {

// Permission bits of a new file before the process's umask is applied.
using FileMode = std::uint32_t;
inline constexpr FileMode kDefaultFileMode = 0666;
inline constexpr FileMode kDefaultDirectoryMode = 0777;

// How a file will be read: a hint for the system's read-ahead. `repeated`: at random places, and the same ones again
// later, also by other processes; of a file with requests, this machine may keep copies.
enum class AccessPattern : std::uint8_t { random, sequential, repeated };

// What exists at a path; symbolic links are followed.
struct FileInfo {
  bool exists = false;
  bool is_directory = false;
  bool is_regular = false;       // neither a directory nor a device, pipe or socket
  std::uint64_t size_bytes = 0;  // of a regular file
  // When the contents, or the names in a directory, last changed, since the Unix epoch. Two changes within a few
  // milliseconds may have the same time.
  std::int64_t modified_ns = 0;
  // Unique on its file system now, and the same for all names of a file; may be reused later.
  std::uint64_t file_id = 0;
};

// Whether the names in a directory are now safe from a crash, or the file system cannot sync directories.
enum class DirectorySync : std::uint8_t { done, unsupported };

struct FileRange {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

// Bytes of a file are read before they are asked for, while this lives.
class ReadAhead {
 public:
  ReadAhead() = default;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  virtual ~ReadAhead() = default;
};

// An open file, read at offsets. Thread-safe. Closed by the destructor.
class RandomAccessFile {
 public:
  RandomAccessFile() = default;
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;
  virtual ~RandomAccessFile() = default;

  // Fills `out` completely, or fails: with truncated if the file ends before, with io if the system call fails. After a
  // failure the contents of `out` are unspecified.
  [[nodiscard]] virtual Result<void> read_at(std::uint64_t offset, ByteSpan out) const = 0;

  // Whether each read costs a request to a service.
  [[nodiscard]] virtual bool has_requests() const noexcept { return false; }
  // Says that each of these ranges will be read once, as it is, about in this order. A file with requests then reads
  // several at once, and neighbours together, with up to `most_bytes` in memory. Other files do nothing (nullptr).
  [[nodiscard]] virtual std::unique_ptr<ReadAhead> read_ahead(std::span<const FileRange> ranges,
                                                              std::uint64_t most_bytes) const;

  // The size when the file was opened.
  [[nodiscard]] virtual std::uint64_t size_bytes() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
};

// A new file that is written from its beginning to its end. Belongs to one thread at a time.
//
// Errors are sticky: once an append, sync or close has failed, every later call fails with the same error. Nothing is
// retried, because after a failed sync the system may have dropped the pages that it could not write. A file that is
// destroyed without close() has unspecified contents.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile() = default;

  // Adds to the end. The bytes may wait in a buffer until sync() or close(), which then report the failure.
  [[nodiscard]] virtual Result<void> append(ConstByteSpan bytes) = 0;

  // Returns when everything appended, and the size, will survive a crash of the machine. The file's name survives only
  // after sync_directory() of its directory.
  [[nodiscard]] virtual Result<void> sync() = 0;

  // Writes what is buffered and closes the file; does not sync. Closing again returns the same result; any other call
  // on a closed file fails with invalid_argument.
  [[nodiscard]] virtual Result<void> close() = 0;

  // Bytes appended so far, buffered ones included.
  [[nodiscard]] virtual std::uint64_t size_bytes() const noexcept = 0;
  [[nodiscard]] virtual const std::string& path() const noexcept = 0;
};

// Whether a lock on a file may be held by several at once.
enum class LockKind : std::uint8_t { shared, exclusive };

// A lock on a file. The destructor, on any thread, releases it, and so does the end of the process, even while children
// that it forked live on.
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

  // invalid_argument for a directory and anything else that is not a regular file.
  [[nodiscard]] virtual Result<std::unique_ptr<RandomAccessFile>> open(
      const std::string& path, AccessPattern pattern = AccessPattern::random) = 0;

  // Creates a new file; invalid_argument if the path exists.
  [[nodiscard]] virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path,
                                                                     FileMode mode = kDefaultFileMode) = 0;

  // Moves a file or directory within one file system; atomic. A file replaces a file, a directory an empty directory.
  [[nodiscard]] virtual Result<void> rename(const std::string& from, const std::string& to) = 0;

  // The same, but fails with invalid_argument, and changes nothing, if `to` exists.
  [[nodiscard]] virtual Result<void> rename_no_replace(const std::string& from, const std::string& to) = 0;

  // Gives a file a second name on the same file system (a hard link). invalid_argument, changing nothing, if `to`
  // exists; unsupported if the file cannot have a second name there.
  [[nodiscard]] virtual Result<void> link(const std::string& from, const std::string& to) = 0;

  // Removes a name of a file, or an empty directory.
  [[nodiscard]] virtual Result<void> remove(const std::string& path) = 0;

  // Creates one directory; invalid_argument if the path exists.
  [[nodiscard]] virtual Result<void> create_directory(const std::string& path,
                                                      FileMode mode = kDefaultDirectoryMode) = 0;

  // The names in a directory, without "." and "..", in byte order.
  [[nodiscard]] virtual Result<std::vector<std::string>> list_directory(const std::string& path) = 0;

  // A path that does not exist is not an error.
  [[nodiscard]] virtual Result<FileInfo> stat(const std::string& path) = 0;

  // Fails if this process may create nothing in the directory. Changes nothing.
  [[nodiscard]] virtual Result<void> check_writable(const std::string& path) = 0;

  // Makes what was created, renamed and removed in a directory survive a crash of the machine.
  [[nodiscard]] virtual Result<DirectorySync> sync_directory(const std::string& path) = 0;

  // Locks a file without waiting, and creates it if it does not exist. Fails with busy if this or another process holds
  // a lock that excludes this one, naming the holder if the system knows it; with io if the file system has no locks.
  //
  // The lock is on the file, not on the name, so lock files in use must not be removed or replaced. A process should
  // not open() a file that it has locked: closing it hides the holder from others, and where the system has only record
  // locks (before Linux 3.15, and on some network file systems) releases the lock.
  [[nodiscard]] virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) = 0;

  // False if a lock may be lost while it is held (FileLock::is_held() tells), because it is the lease of an object
  // store. Writers then never give a file a name that another writer might give one, and locks are exclusive.
  [[nodiscard]] virtual bool has_lasting_locks() const noexcept { return true; }

  // After lock() was busy: how long it may take until it is known whether the holder still lives; 0: it is known.
  [[nodiscard]] virtual std::uint64_t doubt_ms(const std::string& path);

  // What is at all levels of a directory, by paths from there, if that costs a few requests instead of many; else
  // nullopt.
  using Tree = std::map<std::string, FileInfo>;
  [[nodiscard]] virtual Result<std::optional<Tree>> list_tree(const std::string& path);

  // This file system, but with no symbolic link below the directory `root`: calls that would follow one there, also as
  // the last name, fail with invalid_argument and name it, even if another process puts it there during the call. The
  // path of `root` itself may contain links. rename() and remove() treat a link like a file, as always. stat() changes
  // nothing, so it follows links to directories; a link as the last name exists and is neither directory nor regular.
  //
  // This file system must outlive the result; files that are opened through the result need not be closed before it.
  [[nodiscard]] virtual std::shared_ptr<FileSystem> without_links(const std::string& root) = 0;
};

// The file system of this machine; lives as long as the process.
[[nodiscard]] FileSystem& real_file_system() noexcept;

// A relative path, made absolute from the current directory. Absolute and empty paths, and all paths if the current
// directory was removed, stay as they are.
[[nodiscard]] std::string absolute_path(const std::string& path);

// The same text for all spellings of a path: absolute, without symbolic links, ".", ".." or repeated slashes. Parts
// that do not exist, or that the system cannot resolve, are normalized as text.
[[nodiscard]] std::string canonical_path(const std::string& path);

// "a/b/c" -> "a/b", "/c" -> "/", "c" -> ".".
[[nodiscard]] std::string parent_directory(std::string_view path);

// "a/b/c" -> "c"; empty if the path ends in a slash.
[[nodiscard]] std::string_view file_name(std::string_view path) noexcept;

// "a", "b" -> "a/b"; `name` itself if it is absolute or `directory` is empty.
[[nodiscard]] std::string join_path(std::string_view directory, std::string_view name);

// Reads a whole file; resource_exhausted if it is longer than the limit.
[[nodiscard]] Result<std::vector<std::byte>> read_file(FileSystem& file_system, const std::string& path,
                                                       std::uint64_t limit_bytes);

}  // namespace bitsnap::os
