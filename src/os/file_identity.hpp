// Whether two processes mean the same file or directory by a path: they may see other file systems under one text, as
// containers do. Always asks the system. No state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bitsnap::os {

// The same for all paths of a file or directory, in all processes of this machine, as long as it is there.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// A path at which something is.
struct FoundFile {
  std::string path;
  FileIdentity identity;

  friend bool operator==(const FoundFile&, const FoundFile&) = default;
};

// nullopt where nothing is, or the system does not say what.
[[nodiscard]] std::optional<FileIdentity> identify_file(const std::string& path);

// What is at an absolute path, or else at the nearest one above it.
[[nodiscard]] std::optional<FoundFile> nearest_file(const std::string& path);

}  // namespace bitsnap::os
