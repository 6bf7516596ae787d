// A snapshot, or a file or folder that a training wrote, as named tensors whose bytes can be read.
#pragma once

#include <memory>
#include <string>

#include <bitsnap/analysis.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap::cli {

struct TensorFile : AnalysisState {
  std::shared_ptr<const Snapshot> snapshot;  // nullptr: what a training wrote
};

[[nodiscard]] Result<TensorFile> open_tensors(const std::string& path, const OpenOptions& options);
[[nodiscard]] TensorFile tensors_of(std::shared_ptr<const Snapshot> snapshot);
[[nodiscard]] TensorFile tensors_of(State state);

}  // namespace bitsnap::cli
