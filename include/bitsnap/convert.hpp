// Checkpoints of one kind as checkpoints of another: tensors bit for bit, and the values that stand with them.
//
// A training state is what a program would get if it loaded the checkpoint: tensors by their names in the training,
// whatever files and ranks hold them, and a tree of values. Nothing in a checkpoint is executed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/safetensors.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/writer.hpp>

namespace bitsnap {

struct TrainingState {
  // Tensors whole and row-major; the boxes of ranks are put together. Files of several formats together have no tree.
  State state;
  // What is not in `state`, by file and place, such as "last.ckpt: callbacks.EarlyStopping": values that only the
  // program that wrote them understands, tensors that are more than their elements, files of formats that are not read,
  // and the values of one of several files. At most 64 of a file are named.
  std::vector<std::string> left_out;
};

// Of a folder or file as a framework wrote it. The tensors of a file have the names that they have in it, and those of
// several files "FILE/NAME" if two of them have the same name. corrupt for a damaged file, not_found for one that an
// index names and that is not there, invalid_argument if the boxes of a tensor do not cover it once; unsupported for
// tensors whose elements have no size of whole bytes, and for items of DCP that are compressed. resource_exhausted if
// the tensors take more than 64 MiB and 64 times the files, times `limits.max_cost`.
[[nodiscard]] Result<TrainingState> training_state(FolderState folder, const DecodeLimits& limits = {});

// Of snapshots, one for each rank: of folders, or of states.
[[nodiscard]] Result<TrainingState> training_state(std::vector<std::shared_ptr<const Snapshot>> ranks,
                                                   const DecodeLimits& limits = {});

enum class StateFormat : std::uint8_t {
  safetensors,  // the tree, if there is one, is JSON in the metadata, as export_safetensors() writes it
  torch,        // a file of torch.save that torch.load reads with weights_only=True
  dcp,          // a folder of torch.distributed.checkpoint, one file for all tensors
};

// "safetensors", "torch", "dcp"
[[nodiscard]] std::string_view state_format_name(StateFormat format) noexcept;

struct ExportOptions {
  bool overwrite = false;  // replace an existing file; a folder is never replaced
  // Bytes of the tensors in one safetensors file. Above 0, export_state() writes a folder of such files and
  // model.safetensors.index.json; a larger tensor has a file of its own. 0: one file.
  std::uint64_t max_file_bytes = 0;
  RunOptions run = {};
};

// Writes the state to `path`, which appears complete or not at all. invalid_argument if `path` exists, and if the
// format cannot hold a value or a dtype, naming it.
[[nodiscard]] Result<ExportSummary> export_state(const State& state, StateFormat format, const std::string& path,
                                                 const ExportOptions& options = {});

// Compares the tensors of two states by name and bits, in parallel.
[[nodiscard]] Result<std::vector<TensorDifference>> compare(const State& a, const State& b,
                                                            const RunOptions& options = {});

}  // namespace bitsnap
