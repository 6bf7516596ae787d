// The files of a folder while it is being saved.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <bitsnap/folder.hpp>

#include "base/bytes.hpp"
#include "os/file_attributes.hpp"
#include "os/file_system.hpp"

namespace bitsnap {

// Opens files when they are read, and keeps a few open. Thread-safe.
class FolderState::Source {
 public:
  Source(std::string root, std::vector<os::TreeNode> nodes)
      : root_(std::move(root)),
        nodes_(std::move(nodes)),
        files_(os::real_file_system().without_links(os::parent_directory(root_))) {}

  [[nodiscard]] const std::vector<os::TreeNode>& nodes() const noexcept { return nodes_; }
  [[nodiscard]] std::string path_of(std::size_t node) const;

  // Fills `out` with bytes of a file. invalid_argument if the file has changed since the folder was opened.
  [[nodiscard]] Result<void> read_at(std::size_t node, std::uint64_t offset, ByteSpan out) const;
  [[nodiscard]] Result<void> check_unchanged() const;

 private:
  using File = std::shared_ptr<const os::RandomAccessFile>;
  static constexpr std::size_t kOpenFiles = 64;

  [[nodiscard]] Result<File> open(std::size_t node) const;

  const std::string root_;
  const std::vector<os::TreeNode> nodes_;
  const std::shared_ptr<os::FileSystem> files_;  // follows no links in the folder
  mutable std::mutex mutex_;
  // Guarded by `mutex_`: the files that are open, the last used one first.
  mutable std::list<std::pair<std::size_t, File>> open_;
  mutable std::unordered_map<std::size_t, std::list<std::pair<std::size_t, File>>::iterator> places_;
};

// How many names a folder may hold.
inline constexpr std::size_t kMostFolderEntries = std::size_t{1} << 22;

}  // namespace bitsnap
