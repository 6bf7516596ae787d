// The states that `analyze` reads, in order, each with the state that it is compared with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/error.hpp>

#include "cli/run_path.hpp"
#include "cli/tensor_file.hpp"

namespace bitsnap::cli {

// A file, or a checkpoint of a run.
struct StatePlace {
  std::string path;                // for display: "run@20" for a checkpoint
  std::optional<RunPath> run;      // of a checkpoint, with its step
  std::vector<std::string> bases;  // further files and folders with bases of a snapshot

  // "20" for a checkpoint, otherwise the name of the file.
  [[nodiscard]] std::string label() const;
};

struct StatePair {
  StatePlace state;
  std::optional<StatePlace> earlier;
};

struct AnalyzeArguments {
  std::vector<std::string> paths;
  std::optional<std::uint64_t> steps;  // number of checkpoints of a run; nullopt: the newest one
  std::optional<std::uint64_t> shard;
};

// One run or checkpoint is compared with the checkpoint before it; of several paths, each with the one before it.
[[nodiscard]] Result<std::vector<StatePair>> find_states(const AnalyzeArguments& arguments);

[[nodiscard]] Result<TensorFile> open_state(const StatePlace& place, std::optional<std::uint64_t> shard);

}  // namespace bitsnap::cli
