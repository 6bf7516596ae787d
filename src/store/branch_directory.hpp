// BranchDirectory: the directory `branches` of a run, where each branch is a store: docs/spec/store.md, "Branches".
// Makes a branch appear and disappear at one moment. What a branch contains is made elsewhere.
//
// One thread at a time. A process that changes the directory holds its lock; readers hold none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>

#include "os/file_system.hpp"
#include "store/run_layout.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

// invalid_argument, with the reason, unless a branch may have this name.
[[nodiscard]] Result<void> check_branch_name(const std::string& name);

class BranchDirectory {
 public:
  // Of the store in the directory `root`: of the run that it is a branch of, or its own. `files` must outlive it.
  [[nodiscard]] static Result<BranchDirectory> of(os::FileSystem& files, const std::string& root);

  [[nodiscard]] const RunLayout& run() const noexcept { return run_; }
  // The name of the store; empty if it is no branch.
  [[nodiscard]] const std::string& own_name() const noexcept { return own_name_; }
  [[nodiscard]] os::FileSystem& files() const noexcept { return *files_; }
  [[nodiscard]] RunLayout branch(const std::string& name) const { return RunLayout(path_of(name)); }
  // The names of all branches, in byte order.
  [[nodiscard]] Result<std::vector<std::string>> names() const;
  // invalid_argument if there is such a branch or another file.
  [[nodiscard]] Result<void> check_free(const std::string& name) const;

  // Creates the directory if it is not there, takes its lock, and removes what killed processes left. busy if another
  // process holds the lock for as long as `options` let a writer wait, or for ten seconds.
  [[nodiscard]] Result<std::unique_ptr<os::FileLock>> begin(const StoreOptions& options) const;
  // The rest is for the process that holds the lock.
  // The directory in which the next branch is written; it does not exist yet.
  [[nodiscard]] RunLayout unfinished() const { return RunLayout(path_of(kUnfinished)); }
  [[nodiscard]] Result<void> discard_unfinished() const { return remove_tree(path_of(kUnfinished), 0); }
  // Makes what was written and synced there the branch, durably. invalid_argument if there is one with this name.
  [[nodiscard]] Result<void> publish(const std::string& name) const;
  // not_found if there is no such branch; busy if a writer has it open.
  [[nodiscard]] Result<void> remove(const std::string& name) const;

 private:
  // No branch has such a name.
  static constexpr const char* kUnfinished = ".new";
  static constexpr const char* kRemoved = ".removed";
  static constexpr const char* kBranchLock = ".lock";

  BranchDirectory(os::FileSystem& files, RunLayout run, std::string own_name)
      : run_(std::move(run)), own_name_(std::move(own_name)), files_(files.without_links(run_.root())) {}

  [[nodiscard]] std::string path_of(const std::string& name) const { return os::join_path(run_.branches(), name); }
  [[nodiscard]] Result<void> sync(const std::string& directory) const;
  [[nodiscard]] Result<void> remove_tree(const std::string& path, int depth) const;
  // invalid_argument if the directory holds files that no store has.
  [[nodiscard]] Result<void> check_only_own_files(const RunLayout& branch) const;

  RunLayout run_;
  std::string own_name_;
  std::shared_ptr<os::FileSystem> files_;  // follows no links in the run
};

}  // namespace bitsnap::store
