// What `analyze` found out of each state, and the two ways to say it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <bitsnap/analysis.hpp>

#include "cli/analyze_inputs.hpp"
#include "cli/common_options.hpp"
#include "cli/output.hpp"

namespace bitsnap::cli {

// What a tensor, a group of them or a file takes in the snapshot.
struct StoredPart {
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::string codec;  // of a tensor
};

struct StateReport {
  StatePlace state;
  std::optional<StatePlace> earlier;
  std::vector<TensorInfo> tensors;
  Analysis analysis;
  std::optional<AdamNumbers> adam;                // that were said, or those of the first tensor that has any
  std::optional<std::uint64_t> stored_bytes;      // of the file, if it is a snapshot
  std::map<std::size_t, StoredPart> stored;       // by tensor, of those with chunks of their own
  std::vector<std::optional<StoredPart>> groups;  // as the groups of the analysis
};

// analyze_tables.cpp. Of several states: how they develop, then the last one. `with_tensors`: each of its tensors, too.
// `width` is that of the terminal.
[[nodiscard]] std::string render_analysis(const std::vector<StateReport>& reports, bool with_tensors,
                                          std::optional<std::size_t> width);

// analyze_json.cpp; docs/guide/cli.md names the keys.
// `with_details`: all of each tensor, too.
[[nodiscard]] Json analysis_json(const std::vector<StateReport>& reports, std::optional<std::uint64_t> limit_bytes,
                                 bool with_details);

}  // namespace bitsnap::cli
