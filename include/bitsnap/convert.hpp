// Checkpoints of one kind as checkpoints of another: tensors bit for bit, and the values that stand with them.
//
// A training state is what a program would get if it loaded the checkpoint: tensors by their names in the training,
// whatever files and ranks hold them, and a tree of values. Nothing in a checkpoint is executed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bitsnap/dtype.hpp>
#include <bitsnap/error.hpp>
#include <bitsnap/folder.hpp>
#include <bitsnap/global_tensor.hpp>
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

// Of a checkpoint of several ranks, whose tensors are `tensors` (Store::tensors()), with their names. Where the values
// of ranks differ, the state has them in dicts with the keys "rank-N/KEY", one for each key of rank N at the top; its
// tree is nullopt if a rank's state is no dict. Of folders, as without `tensors`. corrupt if the tensors are not those
// of the ranks.
[[nodiscard]] Result<TrainingState> training_state(std::vector<std::shared_ptr<const Snapshot>> ranks,
                                                   const std::vector<GlobalTensor>& tensors,
                                                   const DecodeLimits& limits = {});

struct ModelOptions {
  std::vector<std::string> names;  // of the tensors of the model; empty: they are not known
  std::map<std::string, std::vector<std::uint64_t>> shapes = {};  // of tensors of the model, as far as they are known
  bool all_tensors = false;         // without `names`: the state is that of the model, and nothing else
  std::optional<DType> dtype = {};  // f32, f16 or bf16, for all tensors of floats; nullopt: as they are stored
};

// The tensors of the model alone, out of the state of a training, with the names that the model gives them: without the
// prefix of the place where the state has them, and without those of modules that wrap others. Of tied tensors, only
// the first is taken, or those that `names` has. not_found if the state has no model, invalid_argument if it has
// several, or tensors among those of the model that are not in `names`, lacks any of these, or has another shape of
// one. The result has no tree.
[[nodiscard]] Result<State> model_state(State training, const ModelOptions& options);

enum class StateFormat : std::uint8_t {
  safetensors,  // the tree, if there is one, is JSON in the metadata, as export_safetensors() writes it
  torch,        // a file of torch.save that torch.load reads with weights_only=True
  dcp,          // a folder of torch.distributed.checkpoint, one file for all tensors
  hf,           // a folder with model.safetensors, or with several files and an index, as Transformers loads them
};

// "safetensors", "torch", "dcp", "hf"
[[nodiscard]] std::string_view state_format_name(StateFormat format) noexcept;

struct ExportOptions {
  bool overwrite = false;  // replace an existing file; a folder is never replaced
  // Bytes of the tensors in one safetensors file. Above 0, export_state() writes a folder of such files and
  // model.safetensors.index.json; a larger tensor has a file of its own. 0: one file.
  std::uint64_t max_file_bytes = 0;
  std::vector<std::pair<std::string, std::string>> files = {};  // of StateFormat::hf: names and bytes of other files
  RunOptions run = {};
};

// Writes the state to `path`, which appears complete or not at all. invalid_argument if `path` exists, and if the
// format cannot hold a value or a dtype, naming it.
[[nodiscard]] Result<ExportSummary> export_state(const State& state, StateFormat format, const std::string& path,
                                                 const ExportOptions& options = {});

// Passes the bytes of the safetensors file that export_state() writes to `sink`, piece by piece and in order.
[[nodiscard]] Result<ExportSummary> stream_state(const State& state, const Snapshot::Sink& sink,
                                                 const RunOptions& options = {});

// Compares the tensors of two states by name and bits, in parallel.
[[nodiscard]] Result<std::vector<TensorDifference>> compare(const State& a, const State& b,
                                                            const RunOptions& options = {});

}  // namespace bitsnap
