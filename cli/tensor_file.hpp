// A snapshot or a safetensors file as named tensors whose bytes can be read, whichever it is.
#pragma once

#include <memory>
#include <string>

#include <bitsnap/analysis.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/snapshot.hpp>

namespace bitsnap::cli {

struct TensorFile : AnalysisState {
  std::shared_ptr<const Snapshot> snapshot;  // nullptr: a safetensors file
};

[[nodiscard]] Result<TensorFile> open_tensors(const std::string& path, const OpenOptions& options);
[[nodiscard]] TensorFile tensors_of(std::shared_ptr<const Snapshot> snapshot);

}  // namespace bitsnap::cli
