// A file system that keeps the snapshot files it writes: each is gathered in memory and goes to the real file in one
// go, at sync() or close(), so that a slow disk does not slow coding; and is read from memory as long as it is kept.
//
// Right before the bytes of a file go to the disk its blob is handed to a hook: from then on nobody needs what it was
// made from. All files that do not end in ".bsnap", and all else, go straight to the file system behind this one, which
// outlives it, as it does the files it opened. Thread-safe.
//
// What is kept is what was written here, under the path it has now by what was renamed and removed here; one file is
// always called by the same path. If others have replaced or changed it, it is read from the disk. Nothing is forgotten
// by itself but what was removed or given up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.hpp"
#include "engine/blob.hpp"
#include "os/file_system.hpp"

namespace bitsnap::engine {

class MirrorFileSystem final : public os::FileSystem {
 public:
  // On the thread that writes; must not throw. Once for each file: what is appended after its first sync goes straight
  // to the disk, and is no longer kept.
  using OnComplete = std::function<void(const std::string& path, const std::shared_ptr<const Blob>& blob)>;

  explicit MirrorFileSystem(os::FileSystem& inner, OnComplete on_complete = nullptr);
  ~MirrorFileSystem() override;

  // Of files that are on the disk whole, and kept.
  [[nodiscard]] std::uint64_t kept_bytes() const;
  // nullptr where it is not kept.
  [[nodiscard]] std::shared_ptr<const Blob> kept(const std::string& path) const;
  // The file, or all files below the directory. Those that are being written are not kept either.
  void forget(const std::string& path);
  // All that are kept but those of which it says true.
  void forget_all_but(FunctionRef<bool(const Blob& blob)> is_wanted);

  Result<std::unique_ptr<os::RandomAccessFile>> open(const std::string& path,
                                                     os::AccessPattern pattern = os::AccessPattern::random) override;
  Result<std::unique_ptr<os::WritableFile>> create(const std::string& path,
                                                   os::FileMode mode = os::kDefaultFileMode) override;
  Result<void> rename(const std::string& from, const std::string& to) override;
  Result<void> rename_no_replace(const std::string& from, const std::string& to) override;
  Result<void> remove(const std::string& path) override;
  Result<void> create_directory(const std::string& path, os::FileMode mode = os::kDefaultDirectoryMode) override;
  Result<std::vector<std::string>> list_directory(const std::string& path) override;
  Result<os::FileInfo> stat(const std::string& path) override;
  Result<os::DirectorySync> sync_directory(const std::string& path) override;
  Result<std::unique_ptr<os::FileLock>> lock(const std::string& path, os::LockKind kind) override;

 private:
  class Writer;
  // A file from its creation on, wherever it is moved. Without a blob it is not, or not yet, on the disk whole.
  struct Entry {
    std::string path;
    std::shared_ptr<const Blob> blob;
    os::FileInfo file;  // as it was on the disk when it was whole
  };
  // By path, without slashes at its end.
  using Entries = std::map<std::string, std::shared_ptr<Entry>, std::less<>>;

  // The entries at a path and below it, which are no longer in the table.
  std::vector<std::shared_ptr<Entry>> take_below(std::string_view path);
  void drop(const Entry& entry);
  [[nodiscard]] bool has(const Entry& entry) const;
  // Enters what is on the disk whole by now.
  void keep(Entry& entry, std::shared_ptr<const Blob> blob);
  // After a renaming: what it says about the names that there are.
  void follow_rename(const std::string& from, const std::string& to, const Result<void>& renamed);

  os::FileSystem& inner_;
  const OnComplete on_complete_;
  std::mutex names_mutex_;    // held while names change on the disk and in the table; taken before `mutex_`
  mutable std::mutex mutex_;  // of the table
  Entries entries_;
};

}  // namespace bitsnap::engine
