// The states that `analyze` reads, the findings about each, and their two forms: text and JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/analysis.hpp>

#include "cli/command.hpp"
#include "cli/input/run_path.hpp"
#include "cli/input/training_input.hpp"
#include "cli/output/stored_sizes.hpp"
#include "cli/output/table.hpp"

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

// analyze_inputs.cpp. One run or checkpoint is compared with the checkpoint before it; of several paths, each with the
// one before it.
[[nodiscard]] Result<std::vector<StatePair>> find_states(const AnalyzeArguments& arguments);

struct OpenPair {
  TensorFile state;
  std::optional<TensorFile> earlier;
};

// Two snapshots of the same kind are opened as they are; what a training wrote, and states of different kinds, by the
// names in the training, as open_training() does.
[[nodiscard]] Result<OpenPair> open_pair(const StatePair& pair, std::optional<std::uint64_t> shard);

struct StateReport {
  StatePlace state;
  std::optional<StatePlace> earlier;
  std::vector<TensorInfo> tensors;
  Analysis analysis;
  std::optional<AdamNumbers> adam;            // from the options, or of the first tensor with recorded values
  std::optional<std::uint64_t> stored_bytes;  // of the file; nullopt for safetensors files, as the next two
  std::map<std::size_t, StreamSizes> stored;  // by tensor; only tensors with chunks of their own
  std::vector<StreamSizes> groups;            // sums, parallel to analysis.groups
};

// analyze_tables.cpp. Several states: how they change, then the last one. `with_tensors` adds its tensors. `width` is
// the width of the terminal.
[[nodiscard]] std::string render_analysis(const std::vector<StateReport>& reports, bool with_tensors,
                                          std::optional<std::size_t> width);

// analyze_json.cpp; docs/guide/cli.md describes the keys. `with_details` adds all findings of each tensor.
[[nodiscard]] Json analysis_json(const std::vector<StateReport>& reports, std::optional<std::uint64_t> limit_bytes,
                                 bool with_details);

// ---- what the files of the tables share

// In cells without a value.
inline constexpr std::string_view kNone = "-";

// Width of the terminal; nullopt: unlimited.
using Width = std::optional<std::size_t>;

// "2.56"
[[nodiscard]] std::string format_bits(double bits);
[[nodiscard]] std::string format_bits(const std::optional<double>& bits);
[[nodiscard]] std::string format_bits(const std::optional<BestCodec>& best);
// "2.68 7.97"
[[nodiscard]] std::string format_list(const std::vector<double>& bits);

// Two significant digits: "3.1 %", "0.0024 %".
[[nodiscard]] std::string format_error(double error);

// The table with its title, or an empty string if it has no rows.
[[nodiscard]] std::string titled(std::string_view title, const Table& table, Width width);

// Titles of the rows or columns of a state's groups, in the order of the groups.
using GroupTitles = std::vector<std::string>;

// analyze_coder_tables.cpp
[[nodiscard]] std::string render_coders(const StateReport& report, const GroupTitles& titles, Width width);
[[nodiscard]] std::string render_quantizers(const StateReport& report, const GroupTitles& titles, Width width);

// How states change, role by role.
[[nodiscard]] std::string render_steps(const std::vector<StateReport>& reports, Width width);

}  // namespace bitsnap::cli
