// A file system that passes everything on to another one and fails where it is told to, for tests. Thread-safe.
//
// Operations are counted by kind and all together, from zero. A test runs once to learn the counts, then once for each
// number with a fault there, and so meets every failure that the code under test can meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/file_system.hpp"

namespace bitsnap::os {

enum class FileOperation : std::uint8_t {
  open,
  read,
  create,
  append,
  sync,
  close,
  rename,  // both kinds
  remove,
  create_directory,
  list_directory,
  stat,
  sync_directory,
  lock,
};
inline constexpr std::size_t kFileOperations = 13;

// "sync directory"
[[nodiscard]] std::string_view file_operation_name(FileOperation operation) noexcept;

class FaultyFileSystem final : public FileSystem {
 public:
  struct Fault {
    ErrorKind kind = ErrorKind::io;
    // Every operation from this one on fails as well, as on a device that died or in a process that was killed.
    bool lasting = false;
    // An append hands the first half of its bytes on, then fails; any other operation does its work, then fails, as
    // when an answer is lost. Else the failing operation does nothing.
    bool half_done = false;
  };

  // One operation that was asked for, whatever became of it.
  struct Step {
    FileOperation operation;
    std::string path;  // of a rename the old one
    std::string to;    // of a rename
  };

  // `inner` must outlive this and the files opened through it.
  explicit FaultyFileSystem(FileSystem& inner);
  ~FaultyFileSystem() override;

  // The operation of this kind that has number `index` fails; one fault of each sort may be set at a time.
  void fail_at(FileOperation operation, std::uint64_t index, Fault fault);
  // The operation that has number `index` among all fails.
  void fail_at(std::uint64_t index, Fault fault);
  // The sync that has number `index`, of files and directories together, does nothing and says that it did: as in code
  // that forgot it. A test of crashes that still passes then would not notice. May be called for several.
  void skip_sync(std::uint64_t index);
  // Called before each operation that is asked for, with no lock held: to look at `inner`, or to change it as another
  // process would. Set before the operations begin; not called for what it itself asks of this file system.
  void watch(std::function<void(const Step&)> watcher);
  // Clears the faults, forgets the steps and begins to count at zero again.
  void reset();

  [[nodiscard]] std::uint64_t count(FileOperation operation) const;
  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] std::uint64_t count_syncs() const;  // of files and directories
  // The operations so far, in their order: step N is the one that fail_at(N) makes fail.
  [[nodiscard]] std::vector<Step> steps() const;
  // Operations that were made to fail.
  [[nodiscard]] std::uint64_t failures() const;

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
  class Plan;
  class Reader;
  class Writer;

  FileSystem& inner_;
  std::shared_ptr<Plan> plan_;  // shared with the open files
};

}  // namespace bitsnap::os
