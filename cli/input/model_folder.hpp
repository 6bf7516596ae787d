// A folder with a model, as Transformers reads it: the names of its tensors, and the small files beside them.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/convert.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/tensor.hpp>

#include "cli/input/run_path.hpp"

namespace bitsnap::cli {

using ModelFiles = std::vector<std::pair<std::string, std::string>>;  // names and bytes

// Adds the names and shapes of the tensors in model.safetensors, or of those in its index; nothing if the folder has
// neither.
[[nodiscard]] Result<void> read_model_tensors(const std::string& folder, ModelOptions& model);

// config.json, generation_config.json, and the files of the tokenizer; none if the folder has no config.json.
[[nodiscard]] Result<ModelFiles> model_files(const std::string& folder);
// Those that were saved with a checkpoint.
[[nodiscard]] Result<ModelFiles> model_files(const RunPath& checkpoint);

// Makes config.json say the dtype of the tensors, if it says one. Nothing changes if their dtypes differ.
[[nodiscard]] Result<void> set_config_dtype(ModelFiles& files, const std::vector<TensorInfo>& tensors);

}  // namespace bitsnap::cli
