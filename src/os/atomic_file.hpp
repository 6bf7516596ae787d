// A file that appears under its name whole, or not at all: written beside the target as `.<name>.<random>.tmp`, synced,
// renamed, and the directory synced. A crash at any moment leaves the old target or the new one, and perhaps the
// temporary. What is only a cache may go without the syncs.
//
// Belongs to one thread at a time. Destroyed before commit(), or after commit() failed, it removes the temporary.
// A symbolic link at the target is replaced, not followed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "os/file_system.hpp"

namespace bitsnap::os {

enum class Durability : std::uint8_t {
  synced,
  // No syncs: whole for every reader until the machine crashes. After that the file may be the old one, the new one, or
  // under the new one's name something short or zeroed, so its reader has to be able to tell.
  cached,
};

class AtomicFile {
 public:
  // Makes the temporary. Without `overwrite` a target that exists is invalid_argument, here already and again at
  // commit(); with it, a target that is not a regular file is. `file_system` must outlive the AtomicFile.
  [[nodiscard]] static Result<AtomicFile> create(FileSystem& file_system, const std::string& path, bool overwrite,
                                                 FileMode mode = kDefaultFileMode,
                                                 Durability durability = Durability::synced);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();

  // Where to write. Valid until commit(); need not be synced or closed.
  [[nodiscard]] WritableFile& file() noexcept { return *file_; }

  // Makes the file appear. Once. If the last step fails, the sync of the directory, then the target is there and whole,
  // but a crash may still undo that; the error says so.
  [[nodiscard]] Result<void> commit();

  // After commit(): false where the file system has no directory sync, or the file is only cached, so that a crash of
  // the machine may undo the commit.
  [[nodiscard]] bool directory_synced() const noexcept { return directory_synced_; }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& temporary_path() const noexcept { return temporary_path_; }

  // Whether a file name has the form of such a temporary: what a crash may leave, for those who clean up.
  [[nodiscard]] static bool is_temporary_name(std::string_view name) noexcept;

 private:
  AtomicFile(FileSystem& file_system, std::string path, std::string temporary_path, bool overwrite,
             Durability durability, std::unique_ptr<WritableFile> file) noexcept;
  void abandon() noexcept;

  FileSystem* file_system_;
  std::string path_;
  std::string temporary_path_;
  std::unique_ptr<WritableFile> file_;
  bool overwrite_;
  Durability durability_;
  bool has_temporary_ = true;
  bool committed_ = false;
  bool directory_synced_ = false;
};

}  // namespace bitsnap::os
