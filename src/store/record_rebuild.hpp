// A commit record made again from the files that it named, for a store whose record was damaged.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>

#include "os/file_system.hpp"
#include "store/commit_record.hpp"
#include "store/run_layout.hpp"

namespace bitsnap::store {

// Where a snapshot of that id stands, of the checkpoints before `step`, and, as `standalone`, whether it is the only
// one; nullopt: nowhere.
using FindSnapshot = std::function<std::optional<StepReference>(const SnapshotId& id, std::uint64_t before_step)>;

// Takes the files of one attempt that are all there, each the last of its rewritings whose bases are found. The time is
// that of the files. Chunks are not read. corrupt, saying what is missing, where the files do not make a checkpoint.
[[nodiscard]] Result<CommitRecord> rebuild_commit_record(os::FileSystem& file_system, const RunLayout& layout,
                                                         std::uint64_t step, const FindSnapshot& find,
                                                         const DecodeLimits& limits);

}  // namespace bitsnap::store
