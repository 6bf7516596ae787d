// The tensors and values of one file, or of the files of one DCP checkpoint, before they become a training state.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <bitsnap/error.hpp>
#include <bitsnap/limits.hpp>
#include <bitsnap/value.hpp>
#include <bitsnap/writer.hpp>

#include "interop/container/contents.hpp"
#include "interop/container/file_bytes.hpp"
#include "interop/safetensors/safetensors_contents.hpp"
#include "interop/state/shard_assembly.hpp"
#include "interop/torch_tensors/torch_state.hpp"

namespace bitsnap::interop {

struct CheckpointFile {
  std::string path;       // in the folder; empty: a file alone
  std::string container;  // as FolderEntry::container
  std::string note;       // as FolderEntry::note
  FileBytes bytes;
};

struct StateParts {
  std::string label;             // the path of the file or folder; empty: there is only one
  std::uint64_t file_bytes = 0;  // of the files that were read
  std::vector<TensorSource> tensors;
  std::optional<Value> tree;  // of indices in `tensors`
  std::vector<std::pair<std::string, std::string>> metadata;
  std::optional<std::string> safetensors_header;  // as State::safetensors_header
  std::vector<std::string> left_out;
  std::shared_ptr<StridedCache> strided = make_strided_cache();
};

// Of a file alone, from what the parser of its format found in `bytes`; without `label` and `file_bytes`.
[[nodiscard]] Result<StateParts> state_of_safetensors(const FileBytes& bytes, SafetensorsParts found,
                                                      const DecodeLimits& limits);
[[nodiscard]] Result<StateParts> state_of_arrays(const FileBytes& bytes, Contents found, const DecodeLimits& limits);
[[nodiscard]] Result<StateParts> state_of_torch(const FileBytes& bytes, TorchState found, const DecodeLimits& limits);

// Of a DCP checkpoint, from its .metadata and all files that lie beside it.
[[nodiscard]] Result<StateParts> read_dcp_parts(const CheckpointFile& metadata,
                                                const std::vector<CheckpointFile>& files, const DecodeLimits& limits);

// Adds the tensors of a file of torch.save, with `prefix` before their names, and returns its values, whose indices
// are those of `parts`.
[[nodiscard]] Result<Value> add_torch_state(TorchState state, const FileBytes& bytes, const std::string& prefix,
                                            StateParts& parts);

// Replaces every index of a tensor in the tree.
void renumber_tensors(Value& tree, const std::function<std::size_t(std::size_t)>& number);
// Whether the tree holds anything but tensors, the dicts and lists that they lie in, and the `_metadata` of state
// dicts.
[[nodiscard]] bool has_other_values(const Value& tree);

}  // namespace bitsnap::interop
