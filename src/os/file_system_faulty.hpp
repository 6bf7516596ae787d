// A file system for tests that passes every operation on to another one, and fails those that the test chooses.
// Thread-safe.
//
// Operations are counted from zero, by kind and all together. A test runs once to learn the counts, then once for each
// number with a fault at that number, and so covers every failure that the code under test can meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/file_system_forwarding.hpp"

namespace bitsnap::os {

enum class FileOperation : std::uint8_t {
  open,
  read,
  create,
  append,
  sync,
  close,
  rename,  // both kinds
  link,
  remove,
  create_directory,
  list_directory,
  stat,
  check_writable,
  sync_directory,
  lock,
};
inline constexpr std::size_t kFileOperations = 15;

// "sync directory"
[[nodiscard]] std::string_view file_operation_name(FileOperation operation) noexcept;

class FaultyFileSystem final : public ForwardingFileSystem {
 public:
  struct Fault {
    ErrorKind kind = ErrorKind::io;
    // Every later operation fails, too, as on a broken device or in a killed process.
    bool lasting = false;
    // An append passes on the first half of its bytes, then fails; any other operation does its work, then fails, as if
    // the answer were lost. Otherwise the failing operation does nothing.
    bool half_done = false;
    ErrorCode code = ErrorCode::none;
  };

  // One requested operation, whether or not it failed.
  struct Step {
    FileOperation operation;
    std::string path;  // for a rename or a link: the old path
    std::string to;    // for a rename or a link: the new path
  };

  // `inner` must outlive this and the files opened through it.
  explicit FaultyFileSystem(FileSystem& inner);
  ~FaultyFileSystem() override;

  // Makes operation `index` of this kind fail. One fault for each kind, and one for all, may be set at a time.
  void fail_at(FileOperation operation, std::uint64_t index, Fault fault);
  // Makes operation `index`, counted over all kinds, fail.
  void fail_at(std::uint64_t index, Fault fault);
  // Sync `index`, counted over files and directories, does nothing and reports success, as if the code had forgotten
  // it. A crash test that still passes is blind to that sync. May be called for several.
  void skip_sync(std::uint64_t index);
  // Calls `watcher` before each operation, with no lock held, to inspect `inner` or to change it as another process
  // would. Set it before the first operation; its own operations on this file system do not call it.
  void watch(std::function<void(const Step&)> watcher);
  // Clears the faults and the recorded operations, and restarts the counts at zero.
  void reset();

  [[nodiscard]] std::uint64_t count(FileOperation operation) const;
  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] std::uint64_t count_syncs() const;  // of files and directories
  // The operations so far, in order: entry N is the one that fail_at(N) makes fail.
  [[nodiscard]] std::vector<Step> steps() const;
  // How many operations failed by a fault.
  [[nodiscard]] std::uint64_t failures() const;

 private:
  class Plan;
  class Reader;
  class Writer;
  class Calls;  // those of FileSystem

  FaultyFileSystem(FileSystem& inner, std::shared_ptr<Plan> plan);

  std::shared_ptr<Plan> plan_;  // shared with the open files
};

}  // namespace bitsnap::os
