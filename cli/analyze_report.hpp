// The findings of `analyze` about each state, and their two forms: text and JSON.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/analysis.hpp>

#include "cli/analyze_inputs.hpp"
#include "cli/command.hpp"
#include "cli/stored_sizes.hpp"

namespace bitsnap::cli {

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

}  // namespace bitsnap::cli
