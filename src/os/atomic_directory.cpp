#include "os/atomic_directory.hpp"

#include <cstdint>
#include <ranges>
#include <utility>

#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "os/file_attributes.hpp"

namespace bitsnap::os {
namespace {

constexpr FileMode kPrivateMode = 0700;

void remove_tree(const std::string& root) {
  const auto nodes = read_tree(root, SIZE_MAX);
  if (!nodes) return;
  const auto path_of = [&root](const TreeNode& node) { return node.path.empty() ? root : root + "/" + node.path; };
  // Directories may have got other permissions already.
  for (const TreeNode& node : *nodes) {
    if (node.attributes.kind != NodeKind::directory) continue;
    static_cast<void>(write_attributes(path_of(node), NodeKind::directory, kPrivateMode, 0));
  }
  for (const TreeNode& node : std::views::reverse(*nodes)) static_cast<void>(real_file_system().remove(path_of(node)));
}

}  // namespace

AtomicDirectory::AtomicDirectory(std::string target, std::string temporary)
    : target_(std::move(target)), temporary_(std::move(temporary)) {}

AtomicDirectory::AtomicDirectory(AtomicDirectory&& other) noexcept
    : target_(std::move(other.target_)), temporary_(std::exchange(other.temporary_, {})) {}

AtomicDirectory::~AtomicDirectory() {
  if (!temporary_.empty()) remove_tree(temporary_);
}

Result<AtomicDirectory> AtomicDirectory::create(const std::string& path, FileMode mode) {
  std::string target = canonical_path(path);
  BITSNAP_ASSIGN(const FileInfo existing, real_file_system().stat(target));
  if (existing.exists) return fail(ErrorKind::invalid_argument, target + ": exists already");
  const std::string above = parent_directory(target);
  std::string temporary = (above == "/" ? "" : above) + "/" + temporary_name(target.substr(target.rfind('/') + 1));
  BITSNAP_TRY(real_file_system().create_directory(temporary, mode));
  return AtomicDirectory(std::move(target), std::move(temporary));
}

Result<void> AtomicDirectory::sync() { return sync_file_system(temporary_); }

Result<void> AtomicDirectory::commit() {
  BITSNAP_TRY(real_file_system().rename_no_replace(temporary_, target_));
  temporary_.clear();
  return real_file_system().sync_directory(parent_directory(target_)).map([](DirectorySync) {});
}

}  // namespace bitsnap::os
