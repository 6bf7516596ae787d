#include "os/file_attributes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/try.hpp"
#include "os/descriptor.hpp"
#include "os/descriptor_posix.hpp"
#include "os/errno_error.hpp"
#include "os/file_system.hpp"

namespace bitsnap::os {
namespace {

constexpr std::int64_t kNanoseconds = 1'000'000'000;
constexpr std::uint32_t kPermissions = 07777;

NodeKind kind_of(unsigned mode) noexcept {
  if (S_ISREG(mode)) return NodeKind::file;
  if (S_ISDIR(mode)) return NodeKind::directory;
  if (S_ISLNK(mode)) return NodeKind::symbolic_link;
  return NodeKind::other;
}

std::int64_t nanoseconds_of(const timespec& time) noexcept {
  constexpr std::int64_t kMostSeconds = INT64_MAX / kNanoseconds - 1;
  return std::clamp<std::int64_t>(time.tv_sec, -kMostSeconds, kMostSeconds) * kNanoseconds + time.tv_nsec;
}

// Nanoseconds may be negative for times before 1970, but not those of a timespec.
timespec time_of(std::int64_t ns) noexcept {
  timespec time{};
  time.tv_sec = ns / kNanoseconds;
  time.tv_nsec = ns % kNanoseconds;
  if (time.tv_nsec < 0) {
    --time.tv_sec;
    time.tv_nsec += kNanoseconds;
  }
  return time;
}

// Appends the children of the directory `nodes[index]`.
Result<void> read_children(const std::string& root, std::size_t index, std::size_t limit,
                           std::vector<TreeNode>& nodes) {
  const std::string above = nodes[index].path;
  const std::string directory = above.empty() ? root : root + "/" + above;
  BITSNAP_ASSIGN(const std::vector<std::string> names,
                 real_file_system().without_links(root)->list_directory(directory));
  for (const std::string& name : names) {
    if (nodes.size() >= limit) {
      return fail(ErrorKind::resource_exhausted, root + ": it holds more than " + std::to_string(limit) + " files");
    }
    TreeNode node;
    node.path = above.empty() ? name : above + "/" + name;
    const std::string path = directory + "/" + name;
    BITSNAP_ASSIGN(node.attributes, read_attributes(path));
    if (node.attributes.kind == NodeKind::symbolic_link) {
      BITSNAP_ASSIGN(node.target, read_symbolic_link(path));
    }
    nodes.push_back(std::move(node));
  }
  return {};
}

}  // namespace

Result<FileAttributes> read_attributes(const std::string& path) {
  BITSNAP_TRY(check_path("stat", path));
  struct ::stat info{};
  if (call_again([&] { return ::lstat(path.c_str(), &info); }) != 0) return fail_errno(errno, "stat", path);
  FileAttributes attributes;
  attributes.kind = kind_of(info.st_mode);
  attributes.mode = info.st_mode & kPermissions;
  attributes.modified_ns = nanoseconds_of(info.st_mtim);
  attributes.changed_ns = nanoseconds_of(info.st_ctim);
  attributes.size_bytes = attributes.kind == NodeKind::file ? static_cast<std::uint64_t>(info.st_size) : 0;
  attributes.device = info.st_dev;
  attributes.file_id = info.st_ino;
  attributes.names = attributes.kind == NodeKind::file ? info.st_nlink : 1;
  return attributes;
}

Result<std::string> read_symbolic_link(const std::string& path) {
  BITSNAP_TRY(check_path("read link", path));
  std::array<char, 4096> target{};  // PATH_MAX: no target is longer
  const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
  if (bytes < 0) return fail_errno(errno, "read link", path);
  return std::string(target.data(), static_cast<std::size_t>(bytes));
}

Result<void> create_symbolic_link(const std::string& target, const std::string& path) {
  BITSNAP_TRY(check_path("create link", path));
  BITSNAP_TRY(check_path("create link to", target));
  if (::symlink(target.c_str(), path.c_str()) != 0) return fail_errno(errno, "create link", path);
  return {};
}

Result<void> write_attributes(const std::string& path, NodeKind kind, std::uint32_t mode, std::int64_t modified_ns) {
  BITSNAP_TRY(check_path("set the attributes of", path));
  if (kind != NodeKind::symbolic_link && ::chmod(path.c_str(), mode & kPermissions) != 0) {
    return fail_errno(errno, "set the permissions of", path);
  }
  const std::array<timespec, 2> times{timespec{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, time_of(modified_ns)};
  if (::utimensat(AT_FDCWD, path.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0) {
    return fail_errno(errno, "set the time of", path);
  }
  return {};
}

Result<void> sync_file_system(const std::string& path) {
  const Descriptor directory = open_descriptor_at(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (!directory.is_open()) return fail_errno(errno, "open", path);
  if (call_again([&] { return ::syncfs(directory.get()); }) != 0) return fail_errno(errno, "sync", path);
  return {};
}

Result<std::vector<TreeNode>> read_tree(const std::string& path, std::size_t limit) {
  std::vector<TreeNode> nodes(1);
  BITSNAP_ASSIGN(nodes.front().attributes, read_attributes(path));
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].attributes.kind == NodeKind::directory) BITSNAP_TRY(read_children(path, i, limit, nodes));
  }
  std::ranges::sort(nodes, {}, &TreeNode::path);
  return nodes;
}

}  // namespace bitsnap::os
