// What `analyze` looks at: states in their order, each with the one that it is compared with.
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
  std::string path;                // as people name it: "run@20" for a checkpoint
  std::optional<RunPath> run;      // of a checkpoint, its step included
  std::vector<std::string> bases;  // where else bases of a snapshot may lie

  // "20", or the file's name.
  [[nodiscard]] std::string label() const;
};

struct StatePair {
  StatePlace state;
  std::optional<StatePlace> earlier;
};

struct AnalyzeArguments {
  std::vector<std::string> paths;
  std::optional<std::uint64_t> steps;  // of a run; otherwise its newest one
  std::optional<std::uint64_t> shard;
};

// Of one run or checkpoint: compared with the checkpoint before it. Of several paths: each with the one before it.
[[nodiscard]] Result<std::vector<StatePair>> find_states(const AnalyzeArguments& arguments);

[[nodiscard]] Result<TensorFile> open_state(const StatePlace& place, std::optional<std::uint64_t> shard);

}  // namespace bitsnap::cli
