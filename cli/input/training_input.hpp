// What a training saved, as named tensors and values, from any file, folder or checkpoint of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/analysis.hpp>
#include <bitsnap/convert.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/store.hpp>
#include <bitsnap/writer.hpp>

#include "cli/input/run_path.hpp"

namespace bitsnap::cli {

// A checkpoint of a run, with all its shards open, or the one that was chosen: then `tensors` is nullptr.
struct WholeCheckpoint : OpenedShards {
  std::string run;
};

[[nodiscard]] Result<WholeCheckpoint> open_whole(const RunPath& run, std::optional<std::uint64_t> shard);

// A snapshot, or a file or folder that a training wrote, as named tensors whose bytes can be read.
struct TensorFile : AnalysisState {
  std::shared_ptr<const Snapshot> snapshot;           // nullptr: what a training wrote, or several shards
  std::shared_ptr<const WholeCheckpoint> checkpoint;  // of several shards with states: whose tensors these are
};

[[nodiscard]] Result<TensorFile> open_tensors(const std::string& path, const OpenOptions& options);
[[nodiscard]] TensorFile tensors_of(std::shared_ptr<const Snapshot> snapshot);
[[nodiscard]] TensorFile tensors_of(State state);

struct TrainingInput {
  TrainingState training;
  std::vector<std::shared_ptr<const Snapshot>> snapshots;  // that it is read from; none: from what a training wrote
};

// `shard`: of a run; nullopt: those of all ranks together. `bases`: as in OpenOptions. invalid_argument if the input
// holds no tensors and no values.
[[nodiscard]] Result<TrainingInput> open_training(const std::string& path, const std::vector<std::string>& bases,
                                                  std::optional<std::uint64_t> shard);

}  // namespace bitsnap::cli
