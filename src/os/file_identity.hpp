// Tells whether two processes mean the same file or directory by a path. Processes in different containers may see
// different file systems under the same path. Always asks the system; no state. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bitsnap::os {

// Equal for all paths of a file or directory, in all processes of this machine, as long as it exists.
struct FileIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

// A path that exists.
struct FoundFile {
  std::string path;
  FileIdentity identity;

  friend bool operator==(const FoundFile&, const FoundFile&) = default;
};

// nullopt if nothing exists there, or the system call fails.
[[nodiscard]] std::optional<FileIdentity> identify_file(const std::string& path);

// An absolute path if it exists, otherwise the nearest directory above it that does.
[[nodiscard]] std::optional<FoundFile> nearest_file(const std::string& path);

}  // namespace bitsnap::os
