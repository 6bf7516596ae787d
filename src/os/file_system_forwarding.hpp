// A file system that passes every call on to another one. It is the base of the file systems for tests, whose headers
// so declare what they add, and not the calls of FileSystem again. Thread-safe if the other one is.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "os/file_system.hpp"

namespace bitsnap::os {

class ForwardingFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<RandomAccessFile>> open(const std::string& path,
                                                 AccessPattern pattern = AccessPattern::random) final {
    return inner_->open(path, pattern);
  }
  Result<std::unique_ptr<WritableFile>> create(const std::string& path, FileMode mode = kDefaultFileMode) final {
    return inner_->create(path, mode);
  }
  Result<void> rename(const std::string& from, const std::string& to) final { return inner_->rename(from, to); }
  Result<void> rename_no_replace(const std::string& from, const std::string& to) final {
    return inner_->rename_no_replace(from, to);
  }
  Result<void> link(const std::string& from, const std::string& to) final { return inner_->link(from, to); }
  Result<void> remove(const std::string& path) final { return inner_->remove(path); }
  Result<void> create_directory(const std::string& path, FileMode mode = kDefaultDirectoryMode) final {
    return inner_->create_directory(path, mode);
  }
  Result<std::vector<std::string>> list_directory(const std::string& path) final {
    return inner_->list_directory(path);
  }
  Result<FileInfo> stat(const std::string& path) final { return inner_->stat(path); }
  Result<void> check_writable(const std::string& path) final { return inner_->check_writable(path); }
  Result<DirectorySync> sync_directory(const std::string& path) final { return inner_->sync_directory(path); }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, LockKind kind) final {
    return inner_->lock(path, kind);
  }
  bool has_lasting_locks() const noexcept final { return inner_->has_lasting_locks(); }
  std::uint64_t doubt_ms(const std::string& path) final { return inner_->doubt_ms(path); }
  Result<std::optional<Tree>> list_tree(const std::string& path) final { return inner_->list_tree(path); }
  std::shared_ptr<FileSystem> without_links(const std::string& root) final { return inner_->without_links(root); }

 protected:
  explicit ForwardingFileSystem(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}

 private:
  const std::shared_ptr<FileSystem> inner_;
};

}  // namespace bitsnap::os
