#include "cli/watch/raw_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "src/base/try.hpp"

namespace bitsnap::cli {

namespace {

namespace fs = std::filesystem;

Result<RawEntry> read_raw_entry(const std::string& path, std::string relative) {
  BITSNAP_ASSIGN(const auto facts, read_facts(path));
  if (!facts) return fail(ErrorKind::not_found, fmt::format("{}: vanished while it was read", path));
  RawEntry entry{std::move(relative), *facts, {}};
  if (facts->kind == NodeKind::symbolic_link) {
    std::error_code error;
    entry.target = fs::read_symlink(path, error).string();
    if (error) return fail(ErrorKind::not_found, fmt::format("{}: cannot be read: {}", path, error.message()));
  }
  return entry;
}

}  // namespace

Result<std::vector<std::string>> list_names(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) {
    const auto kind = error == std::errc::no_such_file_or_directory ? ErrorKind::not_found : ErrorKind::io;
    return fail(kind, fmt::format("{}: cannot be listed: {}", directory, error.message()));
  }
  return names;
}

Result<std::vector<RawEntry>> list_raw(const std::string& path) {
  std::vector<RawEntry> tree;
  BITSNAP_ASSIGN(RawEntry root, read_raw_entry(path, ""));
  tree.push_back(std::move(root));
  for (std::size_t i = 0; i < tree.size(); ++i) {
    if (tree[i].facts.kind != NodeKind::directory) continue;
    const std::string above = tree[i].path;
    BITSNAP_ASSIGN(const std::vector<std::string> names, list_names(raw_path(path, tree[i])));
    for (const std::string& name : names) {
      std::string relative = above.empty() ? name : fmt::format("{}/{}", above, name);
      const std::string whole = fmt::format("{}/{}", path, relative);
      BITSNAP_ASSIGN(RawEntry entry, read_raw_entry(whole, std::move(relative)));
      tree.push_back(std::move(entry));
    }
  }
  std::ranges::sort(tree, {}, &RawEntry::path);
  return tree;
}

bool equal_but_renamed(std::vector<RawEntry> before, std::vector<RawEntry> after) {
  before.front().facts.changed_ns = after.front().facts.changed_ns;
  return before == after;
}

std::uint64_t bytes_of(const std::vector<RawEntry>& tree) {
  std::uint64_t bytes = 0;
  std::set<std::pair<std::uint64_t, std::uint64_t>> counted;
  for (const RawEntry& entry : tree) {
    const FileFacts& facts = entry.facts;
    if (facts.links == 1 || counted.insert({facts.device, facts.inode}).second) bytes += facts.size_bytes;
  }
  return bytes;
}

const RawEntry* find_raw(const std::vector<RawEntry>& tree, std::string_view path) {
  const auto found = std::ranges::lower_bound(tree, path, {}, &RawEntry::path);
  return found == tree.end() || found->path != path ? nullptr : &*found;
}

std::string raw_path(const std::string& root, const RawEntry& entry) {
  return entry.path.empty() ? root : fmt::format("{}/{}", root, entry.path);
}

}  // namespace bitsnap::cli
