// The small files of a checkpoint that its caller gave: one tensor each in a snapshot file, which has the metadata of
// the commit as well, so that a repair finds both. docs/spec/store.md, "The caller's files". No state; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/store.hpp>

#include "store/commit_record.hpp"
#include "store/step_directories.hpp"

namespace bitsnap::store {

[[nodiscard]] Result<void> check_files(const std::vector<CheckpointFile>& files);
// Writes the files and the metadata of the caller, durably; nullopt if there are none. Syncs the directory of the
// step in either case.
[[nodiscard]] Result<std::optional<ShardFile>> write_files(StepDirectories& directories, std::uint64_t step,
                                                           const std::string& attempt, const CommitOptions& options);
// `snapshot`: the file that write_files() wrote.
[[nodiscard]] Result<std::vector<CheckpointFile>> read_files(const Snapshot& snapshot);

}  // namespace bitsnap::store
