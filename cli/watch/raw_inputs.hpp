// Finds the checkpoints among what the command line names and what a directory contains. Of contents, reads only
// whether a small file is a reference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

namespace bitsnap::cli {

struct RawCheckpoint {
  std::string path;
  std::uint64_t step = 0;
};

struct RawSkipped {
  std::string path;
  std::optional<std::uint64_t> step;
  std::string reason;
};

// By step, and by path within a step.
struct RawInputs {
  std::vector<RawCheckpoint> checkpoints;
  std::vector<RawCheckpoint> deleting;  // `.NAME.deleting` of earlier calls
  std::vector<RawCheckpoint> gone;      // named, but not there
  std::vector<std::string> empty;       // named directories that contain no checkpoint
  std::vector<RawSkipped> skipped;      // what is there, but no checkpoint to take
};

// invalid_argument, naming the first of the directories that contain no checkpoint, if there is one.
[[nodiscard]] Result<void> check_none_empty(const RawInputs& inputs);

// The children of a directory that are checkpoints: files and directories whose names have a step, but no symbolic
// links and no runs. Skipped are other directories, and links and runs whose names have a step, but not what is hidden
// or has the name of something unfinished.
[[nodiscard]] Result<RawInputs> list_checkpoints(const std::string& directory);

// Each path is a checkpoint if its name has a step. Otherwise it is a directory whose children are checkpoints.
// What is or contains a reference or a run is skipped. not_found if nothing is there, except for a name with a step,
// which an earlier call may have deleted. invalid_argument for other files, for what lies in a run, and for two
// checkpoints of one step.
[[nodiscard]] Result<RawInputs> find_raw_inputs(const std::vector<std::string>& paths);

}  // namespace bitsnap::cli
