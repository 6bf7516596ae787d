// Whether a checkpoint that a training may still be writing is complete, by the markers of its framework, or because
// nothing in it changes any more.
//
// Megatron: latest_checkpointed_iteration.txt beside the checkpoints, written after the checkpoint that it names.
// DeepSpeed: the file `latest` beside the checkpoints, which rank 0 writes when its own files are complete; other ranks
// may still write, so what it names must also settle. PyTorch DCP: .metadata in a folder of .distcp files, written
// last. Transformers: trainer_state.json, written last, where training_args.bin is there, or where another checkpoint
// beside it has a trainer_state.json.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/watch/raw_inputs.hpp"
#include "cli/watch/raw_tree.hpp"

namespace bitsnap::cli {

// Why a file of the checkpoint ends before its own format says, as one does that a killed program has not finished;
// empty if none is known to be. Knows ZIP archives, which torch.save() writes, and safetensors files, and a checkpoint
// that is one empty file. Reads the ends of archives and the headers of safetensors files only. A file that cannot be
// read is none that is known to be cut.
[[nodiscard]] std::string find_cut_file(const std::string& path, const std::vector<RawEntry>& tree);

// A file that names the newest complete checkpoint.
struct TrainingMarker {
  std::string name;                   // of the marker's file
  std::string prefix;                 // of the names of checkpoints that it is about
  std::optional<std::uint64_t> step;  // nullopt: it is being written
  std::int64_t modified_ns = 0;
};

struct TrainingMarkers {
  std::optional<TrainingMarker> megatron;
  std::optional<TrainingMarker> deepspeed;
  bool has_transformers = false;  // one of the checkpoints is a complete one of Transformers
};

// The markers in a directory and in the checkpoints that it holds. A marker that names no step is none.
[[nodiscard]] TrainingMarkers read_markers(const std::string& directory, const std::vector<RawCheckpoint>& checkpoints);

enum class RawState {
  complete,
  changing,    // or it has not been unchanged for long enough
  unfinished,  // nothing changes, but something is missing
};

struct Judgement {
  RawState state = RawState::changing;
  std::string reason;  // why it is unfinished
};

// `unchanged`: for how long the tree has been as it is. `settle`: for how long a checkpoint without a marker must be
// unchanged to be complete.
[[nodiscard]] Judgement judge(const TrainingMarkers& markers, const RawCheckpoint& checkpoint,
                              const std::vector<RawEntry>& tree, std::chrono::nanoseconds unchanged,
                              std::chrono::nanoseconds settle);

}  // namespace bitsnap::cli
