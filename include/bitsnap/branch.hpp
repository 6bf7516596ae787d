// Branches: second lines of a run. A branch begins with one checkpoint of the run, or of another branch, and is a store
// of its own in the directory RUN/branches/NAME. It shares the bytes of files with the run and depends on nothing in
// it. docs/spec/store.md, "Branches". Store makes, lists and removes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap {

// From which checkpoint a branch was made.
struct BranchOrigin {
  std::string run_id;  // of the store that had the checkpoint
  std::string branch;  // the name of that store, if it was a branch itself; empty: the run
  std::uint64_t step = 0;

  friend bool operator==(const BranchOrigin&, const BranchOrigin&) = default;
};

struct Branch {
  std::string name;
  std::string path;                         // of its store; RUN:NAME names the same store
  std::optional<BranchOrigin> origin = {};  // nullopt: unknown, because a repair had to make bitsnap.json again
  std::uint64_t checkpoints = 0;
  std::optional<std::uint64_t> newest = {};  // step
  std::uint64_t stored_bytes = 0;            // of its files; a file with several names counts once
  std::uint64_t own_bytes = 0;               // of these, what neither the run nor another branch holds
  // Of make_branch(): of files that were copied, because the file system has no hard links.
  std::uint64_t copied_bytes = 0;
  std::optional<Error> damage = {};  // in a list: why its bitsnap.json or its checkpoints cannot be read
};

struct BranchOptions {
  bool with_later = false;  // the branch gets all checkpoints after the step, too
  RunOptions run = {};      // of checkpoints that have to be coded again, because they need one that the branch has not
};

// The path of a store that may be written as RUN:NAME. Returns the directory of the branch NAME if RUN is a store, and
// `path` itself if that exists or is no such address. not_found, with the names of the branches, if RUN is a store
// without this branch.
[[nodiscard]] Result<std::string> resolve_branch(const std::string& path);

}  // namespace bitsnap
