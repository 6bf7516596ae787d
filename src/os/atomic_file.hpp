// Writes a file so that it appears under its name whole, or not at all: the bytes go to `.<name>.<random>.tmp` in the
// same directory, are synced and renamed, and the directory is synced. A crash at any moment leaves the old target or
// the new one, and perhaps the temporary file. Files that are only caches may skip the syncs.
//
// One thread at a time uses an AtomicFile. If it is destroyed before commit() has succeeded, it removes the temporary
// file. A symbolic link at the target is replaced, not followed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "os/file_system.hpp"

namespace bitsnap::os {

enum class Durability : std::uint8_t {
  synced,
  // No syncs: the file is whole for every reader until the machine crashes. After a crash it may be the old file, the
  // new one, or a short or zeroed one under the new name, so its readers must detect that.
  cached,
};

// ".<name>.<random>.tmp", with as much of the name as file systems take.
[[nodiscard]] std::string temporary_name(std::string_view name);

class AtomicFile {
 public:
  // Creates the temporary file. Here and in commit(), fails with invalid_argument if the target exists (without
  // `overwrite`) or is not a regular file (with it). `file_system` must outlive the AtomicFile.
  [[nodiscard]] static Result<AtomicFile> create(FileSystem& file_system, const std::string& path, bool overwrite,
                                                 FileMode mode = kDefaultFileMode,
                                                 Durability durability = Durability::synced);

  // The file to write to. Valid until commit(), which syncs and closes it.
  [[nodiscard]] WritableFile& file() noexcept { return *file_; }

  // Makes the file appear under its name. May be called once. `check` is called when the file is complete under its
  // temporary path; after its error, which commit() returns, the target is as it was. If only the sync of the directory
  // fails, the target exists and is whole, but a crash may still undo that; the error says so.
  [[nodiscard]] Result<void> commit(const std::function<Result<void>(const std::string& path)>& check = nullptr);

  // After commit(): false if a crash of the machine may undo the commit, because the file system cannot sync
  // directories or the file is only `cached`.
  [[nodiscard]] bool directory_synced() const noexcept { return directory_synced_; }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::string& temporary_path() const noexcept { return temporary_->path(); }

  // Whether a file name has the form of a temporary file, which a crash may leave behind.
  [[nodiscard]] static bool is_temporary_name(std::string_view name) noexcept;

 private:
  // A file that is removed unless it is kept.
  class Temporary {
   public:
    Temporary(FileSystem& file_system, std::string path);
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;
    ~Temporary() { remove(); }
    void remove() noexcept;
    void keep() noexcept { is_there_ = false; }
    [[nodiscard]] const std::string& path() const noexcept { return path_; }

   private:
    FileSystem& file_system_;
    std::string path_;
    bool is_there_ = true;
  };

  AtomicFile(FileSystem& file_system, std::string path, std::string temporary_path, bool overwrite,
             Durability durability, std::unique_ptr<WritableFile> file);

  FileSystem* file_system_;
  std::string path_;
  bool overwrite_;
  Durability durability_;
  bool directory_synced_ = false;
  std::unique_ptr<Temporary> temporary_;
  std::unique_ptr<WritableFile> file_;  // closed before the temporary file is removed; nullptr after commit()
};

}  // namespace bitsnap::os
