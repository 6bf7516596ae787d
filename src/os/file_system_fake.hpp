// A file system in memory, for tests. It tells what was synced from what was not, and can crash.
//
// Each file has its contents as programs see them and the contents that would survive a crash; each directory likewise
// has its entries. sync() makes a file's contents survive, sync_directory() a directory's entries: no sync implies the
// other, which is the strictest machine a program can meet. There are no links, no permissions, no working directory:
// relative paths start at the root. Its time is a count of changes. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "os/file_system.hpp"

namespace bitsnap::os {

class FakeFileSystem final : public FileSystem {
 public:
  // What a crash spares besides what was synced. A real machine may have written any of it on its own, so code that is
  // to be safe must be so under each. `all` is what the death of a process leaves.
  enum class CrashSpares : std::uint8_t { nothing, directory_entries, file_contents, all };

  FakeFileSystem();
  ~FakeFileSystem() override;

  // A second one that is as this one is now, also in what a crash would take. Open files and locks stay with the first.
  [[nodiscard]] std::unique_ptr<FakeFileSystem> copy() const;

  // Forgets what was not synced. Files that were open fail from now on, and locks are no longer held.
  void crash(CrashSpares spares = CrashSpares::nothing);

  // The same, but of what was not synced any part may survive, as on file systems that write when they like; the seed
  // chooses. Names come and go each on its own, renames whole; of the end of a file that was not synced there may be
  // nothing, a beginning, zeros where the rest should be, or all. fake_disk_testing.hpp has the rules.
  void crash_at_random(std::uint64_t seed);

  // From now on sync_directory() answers `unsupported`, as some network file systems do.
  void refuse_directory_sync();

  // From now on the files of this file system hold at most so many bytes together; an append that would pass it writes
  // what fits, then fails with io.
  void limit_space(std::uint64_t size_bytes);

  // Every file (not directory) that programs see, as an absolute path, in byte order.
  [[nodiscard]] std::vector<std::string> all_files() const;

  // Puts a file there, contents and name synced, with the directories above it; replaces what was there.
  void plant(const std::string& path, ConstByteSpan contents);

  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path,
                                                 AccessPattern pattern = AccessPattern::random) override;
  Result<std::unique_ptr<WritableFile>> create(const std::string& path, FileMode mode = kDefaultFileMode) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> rename_no_replace(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> create_directory(const std::string& path, FileMode mode = kDefaultDirectoryMode) override;
  Result<std::vector<std::string>> list_directory(const std::string& path) override;
  Result<FileInfo> stat(const std::string& path) override;
  Result<DirectorySync> sync_directory(const std::string& path) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) override;

 private:
  struct State;
  class Reader;
  class Writer;
  class Lock;

  std::shared_ptr<State> state_;  // shared with the open files
};

}  // namespace bitsnap::os
