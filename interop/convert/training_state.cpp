// Reads what a training saved from files, folders and snapshots.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <bitsnap/convert.hpp>

#include "base/no_throw.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "interop/container/unique_names.hpp"
#include "interop/dcp/dcp_item.hpp"
#include "interop/folder/container_kinds.hpp"
#include "interop/folder/folder_description.hpp"
#include "interop/folder/folder_source.hpp"
#include "interop/safetensors/safetensors_header.hpp"
#include "interop/state/rank_join.hpp"
#include "interop/state/state_parts.hpp"
#include "json/json_reader.hpp"

namespace bitsnap {
namespace {

using interop::CheckpointFile;
using interop::FileBytes;
using interop::kDcpMetadata;
using interop::kDcpSuffix;
using interop::StateParts;

constexpr std::array<std::string_view, 8> kTensorFiles = {".safetensors", ".pt",  ".pth", ".bin",
                                                          ".ckpt",        ".npy", ".npz", kDcpSuffix};
constexpr std::uint64_t kMostIndexBytes = 100'000'000;
// Tensors may share bytes of a file, and a view may name one element a billion times; what is made of a file is
// bounded.
constexpr std::uint64_t kFreeTensorBytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t kTensorBytesPerByte = 64;

bool is_tensor_file(std::string_view path) {
  return std::ranges::any_of(kTensorFiles, [path](std::string_view suffix) { return path.ends_with(suffix); });
}

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

bool is_dcp_metadata(const CheckpointFile& file) {
  return file.path.ends_with(kDcpMetadata) && file.path.size() == directory_of(file.path).size() + kDcpMetadata.size();
}

// The path in the folder that a symbolic link leads to; nullopt: it leaves the folder.
std::optional<std::string> resolve_link(const FolderEntry& link) {
  if (link.target.starts_with('/')) return std::nullopt;
  std::string path = directory_of(link.path);
  std::string_view rest = link.target;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part == "..") {
      if (path.empty()) return std::nullopt;
      path.pop_back();
      path.resize(directory_of(path).size());
    } else if (!part.empty() && part != ".") {
      path += part;
      path += '/';
    }
  }
  if (!path.empty()) path.pop_back();
  return path;
}

// What the entries of a folder are for a conversion. `bytes_of` returns the bytes of an entry.
template <typename BytesOf>
Result<std::vector<CheckpointFile>> files_of(std::span<const FolderEntry> entries, const BytesOf& bytes_of) {
  std::vector<CheckpointFile> files;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const FolderEntry& entry = entries[i];
    if (entry.kind == EntryKind::file) files.push_back({entry.path, entry.container, entry.note, bytes_of(i)});
  }
  for (const FolderEntry& entry : entries) {
    if (entry.kind != EntryKind::symbolic_link || !is_tensor_file(entry.path)) continue;
    const std::optional<std::string> target = resolve_link(entry);
    if (target && std::ranges::find(files, *target, &CheckpointFile::path) != files.end()) continue;
    return fail(ErrorKind::unsupported,
                fmt::format("{}: is a symbolic link out of the folder, which is not followed", quote_name(entry.path)));
  }
  return files;
}

// The files of a folder before it is saved.
Result<std::vector<CheckpointFile>> files_of(const FolderState& folder) {
  std::vector<TensorInfo> tensors;
  for (const TensorSource& tensor : folder.state.tensors) tensors.push_back(tensor.info);
  BITSNAP_ASSIGN(const interop::FolderDescription description,
                 interop::parse_folder(folder.state.tree.value_or(Value()), tensors));
  std::vector<FolderEntry> entries;
  for (const interop::DescribedEntry& described : description.entries) entries.push_back(described.entry);
  // Entries and nodes have the same order.
  return files_of(entries, [&](std::size_t i) {
    return FileBytes(entries[i].size_bytes, [source = folder.source, i](std::uint64_t offset, ByteSpan out) {
      return source->read_at(i, offset, out);
    });
  });
}

Result<std::vector<CheckpointFile>> files_of(const std::shared_ptr<const Folder>& folder) {
  return files_of(folder->entries(), [&](std::size_t i) {
    return FileBytes(folder->entries()[i].size_bytes,
                     [folder, i](std::uint64_t offset, ByteSpan out) { return folder->read(i, offset, out); });
  });
}

// A model in several files comes with an index that names them: all have to be there.
Result<void> check_index(const CheckpointFile& index, const std::vector<CheckpointFile>& files) {
  BITSNAP_ASSIGN(const std::string text, index.bytes.read_text(0, std::min(index.bytes.size(), kMostIndexBytes)));
  std::set<std::string> named;
  json::JsonReader in(text);
  const auto read_file = [&](std::string_view) {
    return in.read_string().map([&](std::string&& file) { named.insert(std::move(file)); });
  };
  const auto read = in.read_object(
      [&](std::string_view key) { return key == "weight_map" ? in.read_object(read_file) : in.skip_value(); });
  if (!read) return {};  // another index than that of a model
  for (const std::string& name : named) {
    const std::string path = directory_of(index.path) + name;
    if (std::ranges::find(files, path, &CheckpointFile::path) != files.end()) continue;
    return fail(ErrorKind::not_found,
                fmt::format("{} names the file {}, which is not there", quote_name(index.path), quote_name(path)));
  }
  return {};
}

// What is in no part: damage is an error, because tensors of the checkpoint would be missing.
Result<std::vector<std::string>> check_others(const std::vector<CheckpointFile>& files) {
  std::vector<std::string> left_out;
  for (const CheckpointFile& file : files) {
    if (file.path.ends_with(".index.json")) BITSNAP_TRY(check_index(file, files));
    if (!file.container.empty()) continue;
    if (!file.note.empty()) return fail(ErrorKind::corrupt, fmt::format("{}: {}", quote_name(file.path), file.note));
    if (is_tensor_file(file.path)) left_out.push_back(file.path + " (of a format that is not read)");
  }
  return left_out;
}

// `kind` is null if this version does not know the format.
Result<StateParts> parts_of_file(const CheckpointFile& file, const interop::ContainerKind* kind,
                                 const DecodeLimits& limits) {
  const auto read = [&]() -> Result<StateParts> {
    if (kind == nullptr) {
      return fail(ErrorKind::unsupported,
                  fmt::format("this version reads no files of the format {}", quote_name(file.container)));
    }
    if (kind->read_state != nullptr) return kind->read_state(file.bytes, limits);
    return fail(ErrorKind::invalid_argument,
                fmt::format("a file of the format {} cannot be read without its folder, which holds the file {}",
                            kind->name, kDcpMetadata));
  };
  Result<StateParts> parts = read();
  if (!parts && !file.path.empty()) return tl::unexpected(std::move(parts).error().within(quote_name(file.path)));
  if (!parts) return parts;
  parts->label = file.path;
  parts->file_bytes = file.bytes.size();
  return parts;
}

// The parts of a folder, one for each file or DCP checkpoint with tensors.
Result<std::vector<StateParts>> parts_of(const std::vector<CheckpointFile>& files, const DecodeLimits& limits) {
  std::vector<StateParts> all;
  std::set<std::string> dcp_directories;
  for (const CheckpointFile& file : files) {
    const bool has_items =
        is_dcp_metadata(file) && std::ranges::any_of(files, [&](const CheckpointFile& other) {
          return other.path.ends_with(kDcpSuffix) && directory_of(other.path) == directory_of(file.path);
        });
    if (!has_items) continue;
    BITSNAP_ASSIGN(StateParts parts, interop::read_dcp_parts(file, files, limits));
    dcp_directories.insert(directory_of(file.path));
    all.push_back(std::move(parts));
  }
  BITSNAP_ASSIGN(std::vector<std::string> left_out, check_others(files));
  for (const CheckpointFile& file : files) {
    if (file.container.empty()) continue;
    const interop::ContainerKind* const kind = interop::find_container_kind(file.container);
    const bool is_part = kind != nullptr && kind->read_state == nullptr;
    if (is_part && dcp_directories.contains(directory_of(file.path))) continue;
    BITSNAP_ASSIGN(StateParts parts, parts_of_file(file, kind, limits));
    all.push_back(std::move(parts));
  }
  if (!left_out.empty()) {
    StateParts& others = all.emplace_back();
    others.left_out = std::move(left_out);
  }
  return all;
}

// The state that a snapshot holds as it is.
Result<StateParts> parts_of(const std::shared_ptr<const Snapshot>& snapshot, const DecodeLimits& limits) {
  StateParts parts;
  for (std::size_t i = 0; i < snapshot->tensors().size(); ++i) {
    TensorSource source;
    source.info = snapshot->tensors()[i];
    source.read = [snapshot, i](std::uint64_t offset, ByteSpan out) { return snapshot->read_bytes(i, offset, out); };
    parts.tensors.push_back(std::move(source));
  }
  interop::SafetensorsHeader header;
  header.tensors.assign(snapshot->tensors().begin(), snapshot->tensors().end());
  header.metadata = snapshot->metadata();
  BITSNAP_ASSIGN(parts.tree, interop::take_tree(header, limits));
  if (!parts.tree) {
    BITSNAP_ASSIGN(parts.tree, snapshot->tree());
  }
  parts.metadata = std::move(header.metadata);
  parts.safetensors_header = snapshot->safetensors_header();
  parts.file_bytes = UINT64_MAX;  // a snapshot has its own bounds
  return parts;
}

bool is_box(const TensorSource& tensor) { return tensor.info.shard.has_value(); }

// Takes the tensors of which ranks hold boxes, and puts them together. The others stay as they are.
Result<std::vector<TensorSource>> join_boxes(std::vector<StateParts>& ranks) {
  interop::PartedTensors parted;
  for (StateParts& rank : ranks) {
    std::vector<TensorSource> whole;
    for (TensorSource& tensor : rank.tensors) {
      if (!tensor.info.shard) {
        whole.push_back(std::move(tensor));
        continue;
      }
      const std::string name = tensor.info.global_name();
      BITSNAP_TRY(parted.add(name, std::move(tensor)));
    }
    rank.tensors = std::move(whole);
  }
  return parted.take();
}

std::string place_in(const StateParts& parts, const std::string& place) {
  return parts.label.empty() ? place : parts.label + ": " + place;
}

// Several parts as one state without a tree. The name of a tensor says its file if another file has the same one.
TrainingState merge(std::vector<StateParts> all) {
  std::map<std::string, std::size_t> counts;
  for (const StateParts& parts : all) {
    for (const TensorSource& tensor : parts.tensors) ++counts[tensor.info.name];
  }
  TrainingState merged;
  std::map<std::string, std::string> metadata;
  interop::UniqueNames names;
  for (StateParts& parts : all) {
    const std::size_t first = merged.state.tensors.size();
    for (TensorSource& tensor : parts.tensors) {
      std::string& name = tensor.info.name;
      name = names.add(counts[name] > 1 ? interop::escape_invalid_utf8(parts.label) + "/" + name : name);
      if (tensor.info.alias_of) *tensor.info.alias_of += first;
      merged.state.tensors.push_back(std::move(tensor));
    }
    for (const std::string& place : parts.left_out) merged.left_out.push_back(place_in(parts, place));
    if (parts.tree && interop::has_other_values(*parts.tree)) {
      merged.left_out.push_back(place_in(parts, "its values besides tensors"));
    }
    // The files of a model in several files have the same metadata.
    for (auto& [key, value] : parts.metadata) {
      const auto [known, is_new] = metadata.try_emplace(key, value);
      if (is_new) merged.state.metadata.emplace_back(key, value);
      if (known->second != value) merged.left_out.push_back(place_in(parts, fmt::format("metadata '{}'", key)));
    }
  }
  return merged;
}

TrainingState whole(StateParts parts) {
  TrainingState made;
  for (const std::string& place : parts.left_out) made.left_out.push_back(place_in(parts, place));
  made.state.tensors = std::move(parts.tensors);
  made.state.tree = std::move(parts.tree);
  made.state.metadata = std::move(parts.metadata);
  made.state.safetensors_header = std::move(parts.safetensors_header);
  return made;
}

Result<void> check_bytes(const std::vector<StateParts>& all, const DecodeLimits& limits) {
  double most = kFreeTensorBytes;
  double bytes = 0;
  for (const StateParts& parts : all) {
    most += static_cast<double>(kTensorBytesPerByte) * static_cast<double>(parts.file_bytes);
    for (const TensorSource& tensor : parts.tensors) bytes += static_cast<double>(tensor.info.size_bytes);
  }
  if (bytes <= most * limits.max_cost) return {};
  return fail(ErrorKind::resource_exhausted,
              fmt::format("the tensors take {:.3g} bytes, more than 64 times those of the files", bytes));
}

Result<TrainingState> join(std::vector<StateParts> all, const DecodeLimits& limits) {
  BITSNAP_TRY(check_bytes(all, limits));
  // What is in no file with tensors.
  if (all.size() == 2 && all.back().tensors.empty() && !all.back().tree) {
    std::ranges::move(all.back().left_out, std::back_inserter(all.front().left_out));
    all.front().label.clear();
    all.pop_back();
  }
  if (all.size() == 1) return whole(std::move(all.front()));
  return merge(std::move(all));
}

Result<TrainingState> join_ranks(std::vector<StateParts> ranks, const DecodeLimits& limits) {
  const bool has_boxes =
      std::ranges::any_of(ranks, [](const StateParts& rank) { return std::ranges::any_of(rank.tensors, is_box); });
  if (!has_boxes) return join(std::move(ranks), limits);
  StateParts joined;
  BITSNAP_ASSIGN(joined.tensors, join_boxes(ranks));
  // A tensor that moves makes the indices of trees wrong, and aliases with them.
  for (StateParts& rank : ranks) {
    if (rank.tree && interop::has_other_values(*rank.tree)) rank.left_out.emplace_back("its values besides tensors");
    rank.tree.reset();
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
    return join(std::move(parts), limits);
  });
}

Result<TrainingState> training_state(std::vector<std::shared_ptr<const Snapshot>> ranks, const DecodeLimits& limits) {
  return no_throw("reading a training state", [&]() -> Result<TrainingState> {
    std::vector<StateParts> all;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!is_folder(*ranks[rank])) {
        BITSNAP_ASSIGN(StateParts parts, parts_of(ranks[rank], limits));
        all.push_back(std::move(parts));
      } else {
        BITSNAP_ASSIGN(const std::shared_ptr<const Folder> folder, Folder::open(ranks[rank]));
        BITSNAP_ASSIGN(const std::vector<CheckpointFile> files, files_of(folder));
        BITSNAP_ASSIGN(std::vector<StateParts> parts, parts_of(files, limits));
        std::ranges::move(parts, std::back_inserter(all));
      }
      if (ranks.size() == 1) continue;
      for (StateParts& parts : all) {
        if (parts.label.empty()) parts.label = fmt::format("rank-{}", rank);
      }
    }
    return join_ranks(std::move(all), limits);
  });
}

Result<TrainingState> training_state(std::vector<std::shared_ptr<const Snapshot>> ranks,
                                     const std::vector<GlobalTensor>& tensors, const DecodeLimits& limits) {
  const auto is_of_folder = [](const std::shared_ptr<const Snapshot>& rank) { return is_folder(*rank); };
  if (ranks.size() == 1 || std::ranges::any_of(ranks, is_of_folder)) return training_state(std::move(ranks), limits);
  return no_throw("reading a training state", [&]() -> Result<TrainingState> {
    std::vector<StateParts> all;
    for (const std::shared_ptr<const Snapshot>& rank : ranks) {
      BITSNAP_ASSIGN(StateParts parts, parts_of(rank, limits));
      all.push_back(std::move(parts));
    }
    return interop::join_ranks(std::move(all), tensors).map(whole);
  });
}

}  // namespace bitsnap
