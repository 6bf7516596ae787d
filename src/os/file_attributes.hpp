// What a folder holds beside the bytes of its files: kinds, permissions, times and links. No symbolic link is followed,
// except on the way to the last name of a path. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::os {

enum class NodeKind : std::uint8_t { file, directory, symbolic_link, other };

struct FileAttributes {
  NodeKind kind = NodeKind::other;
  std::uint32_t mode = 0;        // the 12 permission bits
  std::int64_t modified_ns = 0;  // since the Unix epoch; the nearest that 64 bits hold
  std::int64_t changed_ns = 0;   // of the attributes or the content: no program can set it
  std::uint64_t size_bytes = 0;  // of a file
  std::uint64_t device = 0;      // with `file_id`: which file it is, the same for all its names
  std::uint64_t file_id = 0;
  std::uint64_t names = 1;  // how many names the file has (hard links)

  friend bool operator==(const FileAttributes&, const FileAttributes&) = default;
};

// not_found if there is nothing at the path.
[[nodiscard]] Result<FileAttributes> read_attributes(const std::string& path);

// What a symbolic link says: any bytes.
[[nodiscard]] Result<std::string> read_symbolic_link(const std::string& path);

// invalid_argument if the path exists.
[[nodiscard]] Result<void> create_symbolic_link(const std::string& target, const std::string& path);

// Of a symbolic link, only the time is set.
[[nodiscard]] Result<void> write_attributes(const std::string& path, NodeKind kind, std::uint32_t mode,
                                            std::int64_t modified_ns);

// Makes everything on the file system of this directory survive a crash of the machine.
[[nodiscard]] Result<void> sync_file_system(const std::string& path);

// One name in a folder.
struct TreeNode {
  std::string path;  // relative to the folder, with '/' between names; empty: the folder itself
  FileAttributes attributes;
  std::string target;  // of a symbolic link

  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// Everything in a folder at any depth, the folder first; each directory comes before what it holds, and names are in
// byte order. For anything but a directory, the only node is that. resource_exhausted if there are more than `limit`
// nodes.
[[nodiscard]] Result<std::vector<TreeNode>> read_tree(const std::string& path, std::size_t limit);

}  // namespace bitsnap::os
