// What is in a raw checkpoint, as a training wrote it: every file, directory and link with its facts, but no content.
// Two equal trees mean that nothing changed in between.
#pragma once

#include <string>
#include <vector>

#include <bitsnap/error.hpp>

#include "cli/operating_system.hpp"

namespace bitsnap::cli {

struct RawEntry {
  std::string path;  // relative, with '/' between names; empty: the checkpoint itself
  FileFacts facts;
  std::string target;  // of a symbolic link

  friend bool operator==(const RawEntry&, const RawEntry&) = default;
};

// In no order. not_found if there is no such directory.
[[nodiscard]] Result<std::vector<std::string>> list_names(const std::string& directory);

// By path; the first one is the checkpoint itself. No symbolic link is followed. not_found if something vanishes while
// it is listed.
[[nodiscard]] Result<std::vector<RawEntry>> list_raw(const std::string& path);

// Whether the trees are equal although the checkpoint itself was renamed, which changes `changed_ns`.
[[nodiscard]] bool equal_but_renamed(std::vector<RawEntry> before, std::vector<RawEntry> after);

// Bytes of all files, those of hard links once.
[[nodiscard]] std::uint64_t bytes_of(const std::vector<RawEntry>& tree);

// nullptr if there is no such entry.
[[nodiscard]] const RawEntry* find_raw(const std::vector<RawEntry>& tree, std::string_view path);

// The path of an entry of the checkpoint at `root`.
[[nodiscard]] std::string raw_path(const std::string& root, const RawEntry& entry);

}  // namespace bitsnap::cli
