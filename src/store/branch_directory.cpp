#include "store/branch_directory.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bitsnap/object_store.hpp>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/similar_names.hpp"
#include "base/try.hpp"
#include "os/atomic_file.hpp"
#include "os/clock.hpp"
#include "store/home.hpp"
#include "store/label_record.hpp"
#include "store/run_marker.hpp"

namespace bitsnap {
namespace {

constexpr std::uint64_t kBranchPollMs = 20;
constexpr std::uint64_t kBranchWaitMs = 10'000;
constexpr std::size_t kMostNamedBranches = 10;
// Directories of a store are three deep.
constexpr int kDeepestTree = 8;

bool is_store_directory(const std::string& path) noexcept {
  const auto found = no_throw("store", [&]() -> Result<bool> {
    BITSNAP_ASSIGN(const store::Home home, store::home_of(path));
    const store::RunLayout layout(home.path);
    os::FileSystem& file_system = *home.files;
    BITSNAP_ASSIGN(const store::RunMarker marker, store::find_marker(file_system, layout));
    if (marker == store::RunMarker::run_record) return true;
    if (marker == store::RunMarker::reference) return false;
    // A store whose run record is lost or damaged still counts, so that a repair can be asked for.
    BITSNAP_ASSIGN(const os::FileInfo lock, file_system.stat(layout.lock()));
    BITSNAP_ASSIGN(const os::FileInfo checkpoints, file_system.stat(layout.checkpoints()));
    return (marker == store::RunMarker::damaged || lock.is_regular) && checkpoints.is_directory;
  });
  return found && *found;
}

Error no_such_branch(const std::string& run, const std::vector<std::string>& names, const std::string& name) {
  std::string message = fmt::format("{}: has no branch {}", run, quote_name(name));
  if (names.empty()) {
    message += fmt::format(" and no others; `bitsnap branch {}@STEP {}` makes one", run, name);
    return Error(ErrorKind::not_found, std::move(message));
  }
  std::vector<std::string> quoted;
  for (const std::string& other : names) quoted.push_back(quote_name(other));
  const std::size_t others = quoted.size() - std::min(quoted.size(), kMostNamedBranches);
  quoted.resize(quoted.size() - others);
  message += fmt::format("; its branches: {}", fmt::join(quoted, ", "));
  if (others > 0) message += fmt::format(" and {} others", others);
  const std::vector<std::string> similar = similar_names(names, name);
  if (!similar.empty()) message += fmt::format("; did you mean {}?", quote_name(similar.front()));
  return Error(ErrorKind::not_found, std::move(message));
}

}  // namespace

bool is_store(const std::string& path) noexcept {
  if (is_store_directory(path)) return true;
  const auto resolved = no_throw("store", [&] { return resolve_branch(path); });
  return resolved && *resolved != path && is_store_directory(*resolved);
}

Result<std::string> resolve_branch(const std::string& path) {
  std::size_t at = path.rfind(':');
  if (at == std::string::npos) return path;
  if (is_object_path(path)) {
    if (path.substr(at).starts_with("://") || path.find('/', at) != std::string::npos) return path;
    return fail(ErrorKind::unsupported, fmt::format("{}: a run in an object store has no branches", path));
  }
  os::FileSystem& files = os::real_file_system();
  if (const auto literal = files.stat(path); !literal || literal->exists) return path;
  for (; at != std::string::npos && at > 0; at = path.rfind(':', at - 1)) {
    const std::string run = path.substr(0, at);
    const std::string name = path.substr(at + 1);
    if (name.find('/') != std::string::npos) break;
    if (!is_store_directory(run)) continue;
    BITSNAP_ASSIGN(const auto directory, store::BranchDirectory::of(files, os::absolute_path(run)));
    BITSNAP_ASSIGN(const std::vector<std::string> names, directory.names());
    if (!std::ranges::binary_search(names, name)) return tl::unexpected(no_such_branch(run, names, name));
    return directory.own_name().empty() ? os::join_path(store::RunLayout(run).branches(), name)
                                        : directory.branch(name).root();
  }
  return path;
}

namespace store {

Result<BranchDirectory> BranchDirectory::of(os::FileSystem& files, const std::string& root) {
  const std::string above = os::parent_directory(root);
  if (os::file_name(above) == kBranchesName) {
    const RunLayout run(os::parent_directory(above));
    BITSNAP_ASSIGN(const RunMarker marker, find_marker(files, run));
    if (marker == RunMarker::run_record) return BranchDirectory(files, run, std::string(os::file_name(root)));
  }
  return BranchDirectory(files, RunLayout(root), "");
}

Result<std::vector<std::string>> BranchDirectory::names() const {
  BITSNAP_ASSIGN(const os::FileInfo info, files_->stat(run_.branches()));
  if (!info.exists) return std::vector<std::string>();
  BITSNAP_ASSIGN(const std::vector<std::string> listed, files_->list_directory(run_.branches()));
  std::vector<std::string> names;
  for (const std::string& name : listed) {
    if (!is_branch_name(name)) continue;
    // A store whose bitsnap.json is lost still has this directory.
    BITSNAP_ASSIGN(const os::FileInfo checkpoints, files_->stat(branch(name).checkpoints()));
    if (checkpoints.is_directory) names.push_back(name);
  }
  return names;
}

Result<void> check_branch_name(const std::string& name) {
  if (!name.empty() && name.find_first_not_of(' ') == std::string::npos) {
    return fail(ErrorKind::invalid_argument, fmt::format("the name of the branch is blank: {}", quote_name(name)));
  }
  if (is_branch_name(name)) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("the name of a branch must have 1 to {} bytes of UTF-8 without control characters, '/', "
                          "'\\', '@' and ':', must not begin with '.' or '-', and must not have digits alone; got {}",
                          kMaxFileNameBytes, quote_name(name)));
}

Result<void> BranchDirectory::check_free(const std::string& name) const {
  BITSNAP_ASSIGN(const os::FileInfo info, files_->stat(path_of(name)));
  if (!info.exists) return {};
  return fail(ErrorKind::invalid_argument,
              fmt::format("{}: the branch {} exists already", run_.root(), quote_name(name)));
}

Result<void> BranchDirectory::sync(const std::string& directory) const {
  return files_->sync_directory(directory).map([](os::DirectorySync) {});
}

Result<std::unique_ptr<os::FileLock>> BranchDirectory::begin(const StoreOptions& options) const {
  if (!files_->has_lasting_locks()) {
    return fail(ErrorKind::unsupported, fmt::format("{}: a run in an object store has no branches", run_.root()));
  }
  const Result<void> created = files_->create_directory(run_.branches());
  if (!created && created.error().kind() != ErrorKind::invalid_argument) return tl::unexpected(created.error());
  // Even if it was there: the process that created it may have been killed.
  BITSNAP_TRY(sync(run_.root()));
  const std::uint64_t start = os::monotonic_ns();
  const std::uint64_t wait_ms = std::max(options.timeout_ms, kBranchWaitMs);
  for (;;) {
    auto lock = files_->lock(path_of(kBranchLock), os::LockKind::exclusive);
    if (lock) {
      // What a killed process has made or removed must not change any more once it is seen.
      BITSNAP_TRY(sync(run_.branches()));
      BITSNAP_TRY(discard_unfinished());
      BITSNAP_TRY(remove_tree(path_of(kRemoved), 0));
      return lock;
    }
    const std::uint64_t waited_ms = (os::monotonic_ns() - start) / 1'000'000;
    if (lock.error().kind() != ErrorKind::busy || waited_ms >= wait_ms) return lock;
    if (options.interrupted && options.interrupted()) {
      return fail(ErrorKind::cancelled, fmt::format("{}: interrupted while waiting for the lock", run_.branches()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kBranchPollMs));
  }
}

Result<void> BranchDirectory::publish(const std::string& name) const {
  BITSNAP_TRY(files_->rename_no_replace(path_of(kUnfinished), path_of(name)));
  return sync(run_.branches());
}

Result<void> BranchDirectory::remove(const std::string& name) const {
  BITSNAP_ASSIGN(const std::vector<std::string> all, names());
  if (!std::ranges::binary_search(all, name)) return tl::unexpected(no_such_branch(run_.root(), all, name));
  const RunLayout layout = branch(name);
  BITSNAP_TRY(check_only_own_files(layout));
  BITSNAP_ASSIGN(const auto lock, files_->lock(layout.lock(), os::LockKind::exclusive));
  BITSNAP_TRY(files_->rename_no_replace(layout.root(), path_of(kRemoved)));
  BITSNAP_TRY(sync(run_.branches()));
  return remove_tree(path_of(kRemoved), 0);
}

Result<void> BranchDirectory::check_only_own_files(const RunLayout& branch) const {
  const auto is_own = [](const std::string& name) {
    return name == kRunRecordName || name == kLockName || name == kCheckpointsName || name == kCatalogName ||
           name == kDamagedName || name == kLabelsName || os::AtomicFile::is_temporary_name(name);
  };
  const auto other = [&](const std::string& path) {
    return fail(
        ErrorKind::invalid_argument,
        fmt::format("{}: is not a file of the store; move it out of the branch before you remove the branch", path));
  };
  BITSNAP_ASSIGN(const std::vector<std::string> names, files_->list_directory(branch.root()));
  const auto strange = std::ranges::find_if_not(names, is_own);
  if (strange != names.end()) return other(os::join_path(branch.root(), *strange));
  BITSNAP_ASSIGN(const std::vector<std::string> steps, files_->list_directory(branch.checkpoints()));
  for (const std::string& name : steps) {
    const std::string path = os::join_path(branch.checkpoints(), name);
    if (!step_from_name(name)) return other(path);
    BITSNAP_ASSIGN(const std::vector<std::string> files, files_->list_directory(path));
    const auto stray = std::ranges::find_if_not(files, [](const std::string& file) { return is_own_file_name(file); });
    if (stray != files.end()) return other(os::join_path(path, *stray));
  }
  return {};
}

Result<void> BranchDirectory::remove_tree(const std::string& path, int depth) const {
  BITSNAP_ASSIGN(const os::FileInfo info, files_->stat(path));
  if (!info.exists) return {};
  if (!info.is_directory) return files_->remove(path);
  if (depth == kDeepestTree) {
    return fail(ErrorKind::invalid_argument, fmt::format("{}: lies too deep to be of a store; remove it", path));
  }
  BITSNAP_ASSIGN(const std::vector<std::string> names, files_->list_directory(path));
  for (const std::string& name : names) BITSNAP_TRY(remove_tree(os::join_path(path, name), depth + 1));
  return files_->remove(path);
}

}  // namespace store
}  // namespace bitsnap
