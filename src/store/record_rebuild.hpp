// Rebuilds a damaged commit record from the files that it named. Holds no state; reads only.
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

// Returns the place of the snapshot `id`, to which `step` refers, in another checkpoint; nullopt if none holds it.
// `standalone` is true if only one checkpoint holds it.
using FindSnapshot = std::function<std::optional<StepReference>(const SnapshotId& id, std::uint64_t step)>;

// Takes the files of the one attempt that has all shards. Of the rewritten versions of a shard, it takes the newest
// whose bases are found. The record gets the time of the files. Chunks are not read. Returns corrupt, naming what is
// missing, if the files do not form a checkpoint.
[[nodiscard]] Result<CommitRecord> rebuild_commit_record(os::FileSystem& file_system, const RunLayout& layout,
                                                         std::uint64_t step, const FindSnapshot& find,
                                                         const DecodeLimits& limits);

}  // namespace bitsnap::store
