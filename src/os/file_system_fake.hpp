// A file system in memory, for tests. It knows what was synced and what was not, and can simulate a crash.
//
// Each file has the contents that programs see and those that would survive a crash; each directory has its entries in
// the same two forms. sync() makes a file's contents survive, sync_directory() a directory's entries; neither implies
// the other, so no real machine is stricter. There are no symbolic links, permissions or working directory: relative
// paths start at the root. Its time is a count of changes. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "os/file_system_forwarding.hpp"

namespace bitsnap::os {

class FakeFileSystem final : public ForwardingFileSystem {
 public:
  // What survives a crash besides what was synced. A real machine may have written any of it on its own, so code must
  // be safe under each. `all`: the process dies, the machine does not.
  enum class CrashSpares : std::uint8_t { nothing, directory_entries, file_contents, all };

  FakeFileSystem();
  ~FakeFileSystem() override;

  // An independent copy, including what is synced and what is not. Open files and locks stay with the original.
  [[nodiscard]] std::unique_ptr<FakeFileSystem> copy() const;

  // Drops what was not synced. Open files fail from now on, and locks are released.
  void crash(CrashSpares spares = CrashSpares::nothing);

  // The same, but any part of what was not synced may survive, chosen by the seed: single names, whole renames, and of
  // the unsynced end of a file nothing, a prefix, zeros, or all. fake_disk_testing.hpp has the rules.
  void crash_at_random(std::uint64_t seed);

  // From now on sync_directory() returns `unsupported`, as on some network file systems.
  void refuse_directory_sync();

  // From now on link() fails with unsupported, as on some network file systems.
  void refuse_links();

  // From now on all files together hold at most `size_bytes`; an append beyond that writes what fits and fails with io.
  void limit_space(std::uint64_t size_bytes);

  // The absolute paths of all files (not directories) that programs see, in byte order.
  [[nodiscard]] std::vector<std::string> all_files() const;

  // One name in a directory, and the file or directory behind it.
  struct DiskName {
    std::string path;
    bool is_seen;        // programs see it
    bool is_synced;      // its directory would have it after a crash
    std::uint64_t node;  // the same for all names of one file; counted in the order of all_names()
    bool is_directory;
    // Of a file, valid until the next change: what programs see, and how many of its bytes would survive a crash.
    ConstByteSpan contents;
    std::uint64_t synced_bytes;
  };

  // Every name that programs see or that would survive a crash, the names in a directory after the first name of the
  // directory. Two disks with equal lists go on alike, whatever is done to both, except for times and for crashes at
  // random, which depend on the order of earlier changes, too.
  [[nodiscard]] std::vector<DiskName> all_names() const;

  // Creates or replaces a file and the directories above it, all synced.
  void plant(const std::string& path, ConstByteSpan contents);

 private:
  struct State;
  class Reader;
  class Writer;
  class Lock;
  class Calls;  // those of FileSystem

  explicit FakeFileSystem(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;  // shared with the open files
};

}  // namespace bitsnap::os
