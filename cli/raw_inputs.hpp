// Finds the checkpoints among what the command line names and what a directory contains. Reads names and kinds only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

struct RawCheckpoint {
  std::string path;
  std::uint64_t step = 0;
};

// By step, and by path within a step.
struct RawInputs {
  std::vector<RawCheckpoint> checkpoints;
  std::vector<RawCheckpoint> deleting;  // `.NAME.deleting` of earlier calls
  std::vector<RawCheckpoint> gone;      // named, but not there
  std::vector<std::string> empty;       // named directories that contain no checkpoint
};

// The children of a directory that are checkpoints: files and directories whose names have a step, but no symbolic
// links and no runs.
[[nodiscard]] Result<RawInputs> list_checkpoints(const std::string& directory);

// Each path is a checkpoint if its name has a step. Otherwise it is a directory whose children are checkpoints.
// not_found if nothing is there, except for a name with a step, which an earlier call may have deleted.
// invalid_argument for other files, and for two checkpoints of one step.
[[nodiscard]] Result<RawInputs> find_raw_inputs(const std::vector<std::string>& paths);

}  // namespace bitsnap::cli
