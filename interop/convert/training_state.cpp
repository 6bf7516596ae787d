// Reads what a training saved from files, folders and snapshots.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <bitsnap/convert.hpp>

#include "base/no_throw.hpp"
#include "base/try.hpp"
#include "interop/container/unique_names.hpp"
#include "interop/convert/state_parts.hpp"
#include "interop/folder/folder_description.hpp"
#include "interop/folder/folder_source.hpp"
#include "interop/safetensors/safetensors_header.hpp"

namespace bitsnap {
namespace {

using interop::CheckpointFile;
using interop::FileBytes;
using interop::StateParts;

constexpr std::string_view kDcpMetadata = ".metadata";

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

bool is_dcp_metadata(const CheckpointFile& file) {
  return file.path.ends_with(kDcpMetadata) && file.path.size() == directory_of(file.path).size() + kDcpMetadata.size();
}

// The files of a folder before it is saved.
Result<std::vector<CheckpointFile>> files_of(const FolderState& folder) {
  std::vector<TensorInfo> tensors;
  for (const TensorSource& tensor : folder.state.tensors) tensors.push_back(tensor.info);
  BITSNAP_ASSIGN(const interop::FolderDescription description,
                 interop::parse_folder(folder.state.tree.value_or(Value()), tensors));
  std::vector<CheckpointFile> files;
  // Entries and nodes have the same order.
  for (std::size_t i = 0; i < description.entries.size(); ++i) {
    const FolderEntry& entry = description.entries[i].entry;
    if (entry.kind != EntryKind::file) continue;
    files.push_back({entry.path.empty() ? description.name : entry.path, entry.container,
                     FileBytes(entry.size_bytes, [source = folder.source, i](std::uint64_t offset, ByteSpan out) {
                       return source->read_at(i, offset, out);
                     })});
  }
  return files;
}

std::vector<CheckpointFile> files_of(const std::shared_ptr<const Folder>& folder) {
  std::vector<CheckpointFile> files;
  for (std::size_t i = 0; i < folder->entries().size(); ++i) {
    const FolderEntry& entry = folder->entries()[i];
    if (entry.kind != EntryKind::file) continue;
    files.push_back({entry.path.empty() ? folder->name() : entry.path, entry.container,
                     FileBytes(entry.size_bytes, [folder, i](std::uint64_t offset, ByteSpan out) {
                       return folder->read(i, offset, out);
                     })});
  }
  return files;
}

// The parts of a folder, one for each file or DCP checkpoint with tensors.
Result<std::vector<StateParts>> parts_of(const std::vector<CheckpointFile>& files, const DecodeLimits& limits) {
  std::vector<StateParts> all;
  std::set<std::string> dcp_directories;
  for (const CheckpointFile& file : files) {
    const bool has_items = is_dcp_metadata(file) && std::ranges::any_of(files, [&](const CheckpointFile& other) {
                             return other.container == "dcp" && directory_of(other.path) == directory_of(file.path);
                           });
    if (!has_items) continue;
    BITSNAP_ASSIGN(StateParts parts, interop::read_dcp_parts(file, files, limits));
    dcp_directories.insert(directory_of(file.path));
    all.push_back(std::move(parts));
  }
  for (const CheckpointFile& file : files) {
    if (file.container.empty()) continue;
    if (file.container == "dcp") {
      if (dcp_directories.contains(directory_of(file.path))) continue;
      return fail(ErrorKind::invalid_argument,
                  fmt::format("{}: a file of DCP needs its folder, with the file .metadata", file.path));
    }
    BITSNAP_ASSIGN(StateParts parts, interop::read_state_parts(file, limits));
    all.push_back(std::move(parts));
  }
  return all;
}

// The state that a snapshot holds as it is.
Result<StateParts> parts_of(const std::shared_ptr<const Snapshot>& snapshot) {
  StateParts parts;
  for (std::size_t i = 0; i < snapshot->tensors().size(); ++i) {
    TensorSource source;
    source.info = snapshot->tensors()[i];
    source.read = [snapshot, i](std::uint64_t offset, ByteSpan out) { return snapshot->read_bytes(i, offset, out); };
    parts.tensors.push_back(std::move(source));
  }
  BITSNAP_ASSIGN(parts.tree, snapshot->tree());
  parts.metadata = snapshot->metadata();
  parts.safetensors_header = snapshot->safetensors_header();
  return parts;
}

bool is_box(const TensorSource& tensor) { return tensor.info.shard.has_value(); }

// Tensors of which ranks hold boxes, put together. The others stay as they are.
Result<std::vector<TensorSource>> join_boxes(std::vector<StateParts>& ranks) {
  std::map<std::string, std::pair<TensorInfo, std::vector<interop::TensorPart>>> boxes;
  std::vector<std::string> names;
  for (StateParts& rank : ranks) {
    for (TensorSource& tensor : rank.tensors) {
      if (!is_box(tensor)) continue;
      const auto [found, is_new] = boxes.try_emplace(tensor.info.name, tensor.info, std::vector<interop::TensorPart>());
      if (is_new) {
        TensorInfo& info = found->second.first;
        names.push_back(info.name);
        BITSNAP_ASSIGN(const std::uint64_t all, shape_size_bytes(DType::u8, info.shard->global_shape));
        BITSNAP_ASSIGN(const std::uint64_t own, shape_size_bytes(DType::u8, info.shape));
        info.size_bytes = own == 0 ? all * element_size(info.dtype) : info.size_bytes / own * all;
        info.shape = info.shard->global_shape;
        info.alias_of.reset();
      }
      found->second.second.push_back({tensor.info.shard->offset, tensor.info.shape, std::move(tensor.read)});
    }
  }
  std::vector<TensorSource> joined;
  for (const std::string& name : names) {
    auto& [info, parts] = boxes.at(name);
    BITSNAP_ASSIGN(TensorSource tensor, interop::assemble(std::move(info), std::move(parts)));
    joined.push_back(std::move(tensor));
  }
  return joined;
}

// Several parts as one state without a tree. The name of a tensor says its file if another file has the same one.
TrainingState merge(std::vector<StateParts> all) {
  std::map<std::string, std::size_t> counts;
  for (const StateParts& parts : all) {
    for (const TensorSource& tensor : parts.tensors) ++counts[tensor.info.name];
  }
  TrainingState merged;
  interop::UniqueNames names;
  for (StateParts& parts : all) {
    const std::size_t first = merged.state.tensors.size();
    for (TensorSource& tensor : parts.tensors) {
      std::string& name = tensor.info.name;
      name = names.add(counts[name] > 1 ? interop::escape_invalid_utf8(parts.label) + "/" + name : name);
      if (tensor.info.alias_of) *tensor.info.alias_of += first;
      merged.state.tensors.push_back(std::move(tensor));
    }
    for (const std::string& place : parts.left_out) merged.left_out.push_back(parts.label + ": " + place);
    if (parts.tree && interop::has_other_values(*parts.tree)) {
      merged.left_out.push_back(parts.label +
                                ": its values besides tensors, because tensors of other files are with it");
    }
    // The files of a sharded checkpoint have the same metadata.
    if (merged.state.metadata.empty()) merged.state.metadata = std::move(parts.metadata);
  }
  return merged;
}

TrainingState whole(StateParts parts) {
  TrainingState made;
  for (const std::string& place : parts.left_out) {
    made.left_out.push_back(parts.label.empty() ? place : parts.label + ": " + place);
  }
  made.state.tensors = std::move(parts.tensors);
  made.state.tree = std::move(parts.tree);
  made.state.metadata = std::move(parts.metadata);
  made.state.safetensors_header = std::move(parts.safetensors_header);
  return made;
}

TrainingState join(std::vector<StateParts> all) {
  if (all.size() == 1) return whole(std::move(all.front()));
  return merge(std::move(all));
}

Result<TrainingState> join_ranks(std::vector<StateParts> ranks) {
  const bool has_boxes =
      std::ranges::any_of(ranks, [](const StateParts& rank) { return std::ranges::any_of(rank.tensors, is_box); });
  if (!has_boxes) return join(std::move(ranks));
  StateParts joined;
  BITSNAP_ASSIGN(joined.tensors, join_boxes(ranks));
  // A tensor that moves makes the indices of trees wrong, and aliases with them.
  for (StateParts& rank : ranks) {
    if (rank.tree && interop::has_other_values(*rank.tree)) {
      rank.left_out.emplace_back("its values besides tensors, because tensors of other ranks are with it");
    }
    rank.tree.reset();
    std::erase_if(rank.tensors, is_box);
    for (TensorSource& tensor : rank.tensors) tensor.info.alias_of.reset();
  }
  ranks.push_back(std::move(joined));
  return merge(std::move(ranks));
}

}  // namespace

Result<TrainingState> training_state(FolderState folder, const DecodeLimits& limits) {
  return no_throw("reading a training state", [&]() -> Result<TrainingState> {
    // A safetensors file alone.
    if (!folder.state.tree) {
      TrainingState file{std::move(folder.state), {}};
      interop::SafetensorsHeader header;
      for (const TensorSource& tensor : file.state.tensors) header.tensors.push_back(tensor.info);
      header.metadata = std::move(file.state.metadata);
      BITSNAP_ASSIGN(file.state.tree, interop::take_tree(header, limits));
      file.state.metadata = std::move(header.metadata);
      return file;
    }
    BITSNAP_ASSIGN(const std::vector<CheckpointFile> files, files_of(folder));
    BITSNAP_ASSIGN(std::vector<StateParts> parts, parts_of(files, limits));
    return join(std::move(parts));
  });
}

Result<TrainingState> training_state(std::vector<std::shared_ptr<const Snapshot>> ranks, const DecodeLimits& limits) {
  return no_throw("reading a training state", [&]() -> Result<TrainingState> {
    std::vector<StateParts> all;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!is_folder(*ranks[rank])) {
        BITSNAP_ASSIGN(StateParts parts, parts_of(ranks[rank]));
        all.push_back(std::move(parts));
      } else {
        BITSNAP_ASSIGN(const std::shared_ptr<const Folder> folder, Folder::open(ranks[rank]));
        BITSNAP_ASSIGN(std::vector<StateParts> parts, parts_of(files_of(folder), limits));
        std::ranges::move(parts, std::back_inserter(all));
      }
      if (ranks.size() == 1) continue;
      for (StateParts& parts : all) {
        if (parts.label.empty()) parts.label = fmt::format("rank-{}", rank);
      }
    }
    return join_ranks(std::move(all));
  });
}

}  // namespace bitsnap
