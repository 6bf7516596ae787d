// Copying a checkpoint from one run to another: what `add` does with a reference. The copy has the same tensors,
// values, metadata, shards and files, coded as the other run codes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/store.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/watch/checkpoint_saving.hpp"

namespace bitsnap::cli {

// A checkpoint that is open to be copied.
struct CopySource {
  RunPath from;
  CheckpointInfo info;
  std::vector<State> shards;  // read from the run when the save needs them
  std::vector<CheckpointFile> files;
};

// Opens all shards of a checkpoint. `from` has a step.
[[nodiscard]] Result<CopySource> open_copy(const RunPath& from);

// Saves what was opened as step `step`. Everything is decoded again: that of one shard before the step is committed,
// that of several shards afterwards. `path` is what the user named.
[[nodiscard]] Result<SavedCheckpoint> save_copy(Store& store, const CopySource& source, const std::string& path,
                                                std::uint64_t step, const CommonOptions& common,
                                                const std::vector<std::string>& labels);

}  // namespace bitsnap::cli
