// `bitsnap inspect`: shows the content of a snapshot, a checkpoint, a file or a folder, and the size of each tensor.
// Decodes nothing.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include <bitsnap/folder.hpp>
#include <bitsnap/snapshot.hpp>
#include <bitsnap/text.hpp>
#include <bitsnap/value.hpp>
#include <bitsnap/version.hpp>

#include "cli/command.hpp"
#include "cli/input/checkpoint_input.hpp"
#include "cli/input/run_path.hpp"
#include "cli/input/training_input.hpp"
#include "cli/output/global_sizes.hpp"
#include "cli/output/losses.hpp"
#include "cli/output/stored_sizes.hpp"
#include "cli/output/table.hpp"
#include "cli/text_format.hpp"

namespace bitsnap::cli {

namespace {

std::string describe_kind(const FolderEntry& entry) {
  switch (entry.kind) {
    case EntryKind::file: return entry.container.empty() ? "bytes" : entry.container;
    case EntryKind::directory: return "directory";
    case EntryKind::symbolic_link: return fmt::format("-> {}", printable(entry.target));
    case EntryKind::hard_link: break;
  }
  return fmt::format("same file as {}", printable(entry.target));
}

Json folder_json(const Folder& folder) {
  Json document = {{"name", printable(folder.name())}, {"entries", Json::array()}};
  for (const FolderEntry& entry : folder.entries()) {
    Json object = {{"path", printable(entry.path)},
                   {"kind", entry_kind_name(entry.kind)},
                   {"mode", fmt::format("{:04o}", entry.mode)},
                   {"modified_ns", entry.modified_ns}};
    if (!entry.target.empty()) object["target"] = printable(entry.target);
    if (entry.kind == EntryKind::file) {
      object["bytes"] = entry.size_bytes;
      object["container"] = entry.container.empty() ? Json() : Json(entry.container);
      object["tensors"] = entry.tensors.size();
      if (!entry.note.empty()) object["note"] = printable(entry.note);
    }
    document["entries"].push_back(std::move(object));
  }
  return document;
}

// A table of its files, links and empty directories.
std::string render_folder(const Folder& folder, const CommonOptions& common) {
  Table table({{"file", Align::left, Narrow::middle},
               {"format"},
               {"mode", Align::left, Narrow::never, 2},
               {"raw", Align::right},
               {"tensors", Align::right, Narrow::never, 1},
               {"note", Align::left, Narrow::end, 3}});
  for (const FolderEntry& entry : folder.entries()) {
    if (entry.kind == EntryKind::directory && (entry.path.empty() || !common.verbose)) continue;
    const bool is_file = entry.kind == EntryKind::file;
    const std::string path = entry.path.empty() ? folder.name() : entry.path;
    table.add_row({printable(path), describe_kind(entry), fmt::format("{:04o}", entry.mode),
                   is_file ? format_size(entry.size_bytes) : "",
                   is_file && !entry.tensors.empty() ? format_count(entry.tensors.size()) : "", printable(entry.note)});
  }
  return table.empty() ? "" : table.render(common.table_width());
}

// The values of a state that only a program makes again: those of registered types, and pickled ones.
// docs/spec/typed_tree.md
struct ProgramValues {
  std::map<std::string, std::uint64_t> registered;  // how many, by tag
  std::map<std::string, std::uint64_t> pickled;     // how many, by the name of their type
};

constexpr std::size_t kNamesWidth = 100;

void count(const Value& value, ProgramValues& found) {
  if (const auto* list = std::get_if<ValueList>(&value.get())) {
    for (const Value& item : *list) count(item, found);
  } else if (const auto* tuple = std::get_if<ValueTuple>(&value.get())) {
    for (const Value& item : tuple->items) count(item, found);
  } else if (const auto* dict = std::get_if<ValueDict>(&value.get())) {
    for (const auto& [key, item] : dict->entries) count(item, found);
  } else if (const auto* typed = std::get_if<ValueTyped>(&value.get())) {
    const Value& content = typed->content.front();
    const auto* parts = std::get_if<ValueTuple>(&content.get());
    const auto* name =
        parts == nullptr || parts->items.empty() ? nullptr : std::get_if<std::string>(&parts->items.front().get());
    if (name != nullptr && typed->type == "registered") ++found.registered[*name];
    if (name != nullptr && typed->type == "pickle") ++found.pickled[*name];
    count(content, found);
  }
}

ProgramValues program_values(const Value& tree) {
  ProgramValues found;
  count(tree, found);
  return found;
}

// For people: `my.Scale, my.Schedule (2)`, with escaped control characters. Long texts are cut.
std::string counted_names(const std::map<std::string, std::uint64_t>& counts) {
  std::string text;
  for (const auto& [name, number] : counts) {
    text += text.empty() ? "" : ", ";
    text += printable(name);
    if (number > 1) text += fmt::format(" ({})", number);
    if (text.size() > kNamesWidth) break;
  }
  return elide_end(text, kNamesWidth);
}

constexpr std::size_t kMetadataWidth = 100;

struct InspectOptions {
  std::string path;
  std::optional<std::uint64_t> shard;
};

using Metadata = std::vector<std::pair<std::string, std::string>>;

void add_line(std::string& out, std::string_view title, std::string_view text) {
  out += fmt::format("{:<10} {}\n", title, text);
}

void add_metadata(std::string& out, const Metadata& metadata, bool whole) {
  for (const auto& [key, value] : metadata) {
    const std::string line = fmt::format("{} = {}", printable(key), printable(value));
    add_line(out, "metadata", whole ? line : elide_end(line, kMetadataWidth));
  }
}

// The keys are known to differ, so none is looked for: Json searches all of an object's keys for each that is set.
Json metadata_json(const Metadata& metadata) {
  Json object = Json::object();
  for (const auto& [key, value] : metadata) object.get_ref<Json::object_t&>().emplace_back(key, value);
  return object;
}

// ---- snapshots as JSON

Json chunks_json(const Snapshot& snapshot, std::size_t stream) {
  Json chunks = Json::array();
  for (std::uint64_t i = 0; i < snapshot.streams()[stream].chunk_count(); ++i) {
    const auto info = snapshot.chunk_info(stream, i);
    if (!info) {
      continue;  // cannot happen: measure_sizes() has read each of them before
    }
    chunks.push_back({{"codec", info->codec},
                      {"codec_id", info->codec_id},
                      {"uses_base", info->uses_base},
                      {"depth", info->depth},
                      {"offset", info->offset},
                      {"raw_bytes", info->raw_bytes},
                      {"stored_bytes", info->stored_bytes},
                      {"stored_hash", fmt::format("{:016x}", info->stored_hash)},
                      {"decoded_hash", fmt::format("{:016x}", info->decoded_hash)}});
  }
  return chunks;
}

void add_stream(Json& object, const Snapshot& snapshot, std::size_t stream, const StreamSizes& sizes,
                bool with_chunks) {
  object["stored_bytes"] = sizes.stored_bytes;
  object["ratio"] = ratio_json(sizes.raw_bytes, sizes.stored_bytes);
  object["codec"] = sizes.codec();
  object["codecs"] = sizes.codecs;
  object["depth"] = sizes.depth;
  object["reason"] = snapshot.reason(stream);
  if (const auto& lost = snapshot.quantizer(stream)) object["quantizer"] = *lost;
  if (with_chunks) object["chunks"] = chunks_json(snapshot, stream);
}

Json tensor_json(const Snapshot& snapshot, const SnapshotSizes& sizes, std::size_t index, bool with_chunks) {
  const TensorInfo& tensor = snapshot.tensors()[index];
  Json object = tensor;
  if (tensor.shard) {
    object["global_name"] = tensor.global_name();
    object["global_shape"] = tensor.shard->global_shape;
    object["offset"] = tensor.shard->offset;
  }
  if (tensor.alias_of) {
    object["alias_of"] = snapshot.tensors()[*tensor.alias_of].name;
  } else if (const auto stream = snapshot.stream_of(index)) {
    add_stream(object, snapshot, *stream, sizes.streams[*stream], with_chunks);
  } else if (tensor.size_bytes > 0) {
    object["pooled"] = true;
  }
  return object;
}

Json snapshot_json(const Snapshot& snapshot, const SnapshotSizes& sizes, bool with_chunks) {
  Json document = {{"path", snapshot.name()},
                   {"kind", "snapshot"},
                   {"id", snapshot.id().to_hex()},
                   {"format", kFormatVersion},
                   {"writer", snapshot.writer()},
                   {"policy", snapshot.policy()},
                   {"objective", snapshot.objective().empty() ? Json() : Json(snapshot.objective())},
                   {"file_bytes", snapshot.file_bytes()}};
  document["from_safetensors"] = snapshot.safetensors_header().has_value();
  document["depth"] = sizes.depth;
  document["bases"] = Json::array();
  for (const BaseReference& base : snapshot.bases()) {
    document["bases"].push_back({{"id", base.id.to_hex()}, {"name", base.name}});
  }
  document["metadata"] = metadata_json(snapshot.metadata());
  document["tensors"] = Json::array();
  for (std::size_t i = 0; i < snapshot.tensors().size(); ++i) {
    document["tensors"].push_back(tensor_json(snapshot, sizes, i, with_chunks));
  }
  document["pool"] = nullptr;
  if (sizes.pool_stream) {
    document["pool"] = {{"tensors", sizes.pool.tensors}, {"raw_bytes", sizes.pool.raw_bytes}};
    add_stream(document["pool"], snapshot, *sizes.pool_stream, sizes.streams[*sizes.pool_stream], with_chunks);
  }
  document["roles"] = roles_json(sizes.roles);
  document["index_bytes"] = sizes.overhead_bytes;
  document["total"] = sizes.total;
  return document;
}

// The tree of values as JSON text: many times smaller than a document of it.
Result<std::string> tree_json(const std::optional<Value>& tree) {
  if (!tree) return "null";
  return serialize_value(*tree);
}

// `shard`: nullopt for all shards together.
Json checkpoint_json(const std::string& run, const Checkpoint& info, std::optional<std::uint64_t> shard) {
  return {{"run", run},
          {"step", info.step},
          {"shard", shard},
          {"shards", info.shards},
          {"base", info.base},
          {"time_unix_ms", info.time_unix_ms},
          {"time", format_utc_time(info.time_unix_ms)}};
}

// ---- snapshots as text

// Of a run. `shard`: as in checkpoint_json().
void add_checkpoint(std::string& out, const std::string& run, const Checkpoint& info,
                    std::optional<std::uint64_t> shard) {
  const std::string of_shards = info.shards == 1 ? ""
                                : shard          ? fmt::format(", shard {} of {} counted from 0", *shard, info.shards)
                                                 : fmt::format(", {} shards together", info.shards);
  add_line(out, "checkpoint",
           fmt::format("{}{}, saved {}", printable(checkpoint_name(run, info.step)), of_shards,
                       format_local_time(info.time_unix_ms)));
  add_line(out, "against", info.base ? fmt::format("step {}", *info.base) : "nothing: a keyframe");
}

// A damaged tree is reported by the readers of its values.
void add_program_values(std::string& out, const Snapshot& snapshot) {
  const Result<std::optional<Value>> tree = snapshot.tree();
  if (!tree || !*tree) return;
  const ProgramValues values = program_values(**tree);
  if (!values.registered.empty()) add_line(out, "registered", counted_names(values.registered));
  if (!values.pickled.empty()) {
    add_line(out, "pickled", counted_names(values.pickled) + "; loading these runs code that the file chooses");
  }
}

std::string render_header(const Snapshot& snapshot, const SnapshotSizes& sizes, bool verbose) {
  std::string out;
  add_line(out, "file", fmt::format("{} ({})", printable(snapshot.name()), format_size(snapshot.file_bytes())));
  add_line(out, "id", snapshot.id().to_hex());
  add_line(out, "format",
           fmt::format("bitsnap snapshot, format {}{}", kFormatVersion,
                       snapshot.safetensors_header() ? ", made from a safetensors file"
                       : is_folder(snapshot)         ? ", made from a folder or a file"
                                                     : ""));
  add_line(out, "writer",
           fmt::format("{}, policy {}{}", printable(snapshot.writer()), printable(snapshot.policy()),
                       snapshot.objective().empty() ? "" : " for " + printable(snapshot.objective())));
  for (const BaseReference& base : snapshot.bases()) {
    const std::string name = base.name.empty() ? "" : fmt::format(" {}", printable(base.name));
    add_line(out, "base", base.id.to_hex() + name);
  }
  add_line(out, "depth", fmt::format("{}{}", sizes.depth, snapshot.bases().empty() ? " (needs no base)" : ""));
  if (snapshot.has_tree() && !is_folder(snapshot)) {
    add_line(out, "tree", "values that are stored with the tensors; --json shows them");
    add_program_values(out, snapshot);
  }
  add_metadata(out, snapshot.metadata(), verbose);
  return out;
}

std::string render_tensors(const Snapshot& snapshot, const SnapshotSizes& sizes, const CommonOptions& common) {
  Table table({{"tensor", Align::left, Narrow::middle},
               {"dtype", Align::left, Narrow::never, 1},
               {"shape", Align::left, Narrow::never, 2},
               {"role", Align::left, Narrow::never, 3},
               {"codec"},
               {"raw", Align::right, Narrow::never, 4},
               {"stored", Align::right},
               {"ratio", Align::right},
               {"why", Align::left, Narrow::end, 5}});
  const auto tensors = snapshot.tensors();
  const auto codec_of = [&](const StreamSizes& stream) {
    return common.verbose && stream.codecs.size() > 1 ? stream.codec_counts() : stream.codec();
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    std::string codec = "-";
    std::string stored = "-";
    std::string ratio = "-";
    std::string why;
    if (tensor.alias_of) {
      codec = "alias";
      why = fmt::format("same bytes as {}", printable(tensors[*tensor.alias_of].name));
    } else if (const auto stream = snapshot.stream_of(i)) {
      const StreamSizes& stream_sizes = sizes.streams[*stream];
      codec = codec_of(stream_sizes);
      stored = format_size(stream_sizes.stored_bytes);
      ratio = format_ratio(stream_sizes.raw_bytes, stream_sizes.stored_bytes);
      why = printable(snapshot.reason(*stream));
    } else if (tensor.size_bytes > 0) {
      codec = "(pool)";
      why = "small: stored together with other tensors";
    } else {
      why = "empty";
    }
    table.add_row({printable(tensor.name), printable(tensor.dtype_name), format_shape(tensor.shape),
                   std::string(role_name(tensor.role)), std::move(codec), format_size(tensor.size_bytes),
                   std::move(stored), std::move(ratio), std::move(why)});
  }
  if (sizes.pool_stream) {
    const RoleSizes& pool = sizes.pool;
    table.add_row({"(pool)", "", format_plural(pool.tensors, "tensor"), "", codec_of(sizes.streams[*sizes.pool_stream]),
                   format_size(pool.raw_bytes), format_size(pool.stored_bytes),
                   format_ratio(pool.raw_bytes, pool.stored_bytes), printable(snapshot.reason(*sizes.pool_stream))});
  }
  return table.render(common.table_width());
}

// `checkpoint`: of a run, with this snapshot as its only shard.
Result<int> inspect_snapshot(const std::shared_ptr<const Snapshot>& snapshot, const WholeCheckpoint* checkpoint,
                             std::uint64_t shard, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto sizes, measure_sizes(*snapshot));
  std::shared_ptr<const Folder> folder;
  if (is_folder(*snapshot)) {
    BITSNAP_ASSIGN(folder, Folder::open(snapshot));
  }
  if (common.json) {
    BITSNAP_ASSIGN(const auto values, snapshot->tree());
    BITSNAP_ASSIGN(const std::string tree, tree_json(values));
    Json document = snapshot_json(*snapshot, sizes, common.verbose);
    if (folder != nullptr) document["folder"] = folder_json(*folder);
    if (checkpoint != nullptr) document["checkpoint"] = checkpoint_json(checkpoint->run, checkpoint->info, shard);
    print_json(document, "tree", tree);
    return kExitOk;
  }
  std::string out;
  if (checkpoint != nullptr) add_checkpoint(out, checkpoint->run, checkpoint->info, shard);
  out += render_header(*snapshot, sizes, common.verbose) + '\n';
  if (folder != nullptr) {
    const std::string files = render_folder(*folder, common);
    out += files.empty() ? "" : files + '\n';
  }
  if (!snapshot->tensors().empty()) out += render_tensors(*snapshot, sizes, common) + '\n';
  out += render_roles(sizes, common.table_width());
  const std::string losses = render_losses(*snapshot, common);
  print_result(losses.empty() ? out : out + '\n' + losses);
  return kExitOk;
}

// ---- checkpoints of several shards

Result<int> inspect_whole(const WholeCheckpoint& checkpoint, const CommonOptions& common) {
  BITSNAP_ASSIGN(const GlobalSizes sizes, measure_sizes(checkpoint));
  if (common.json) {
    BITSNAP_ASSIGN(const TrainingState training, training_state(checkpoint.snapshots, *checkpoint.tensors));
    BITSNAP_ASSIGN(const std::string tree, tree_json(training.state.tree));
    Json document = global_json(checkpoint, sizes);
    document["checkpoint"] = checkpoint_json(checkpoint.run, checkpoint.info, std::nullopt);
    print_json(document, "tree", tree);
    return kExitOk;
  }
  std::string out;
  add_checkpoint(out, checkpoint.run, checkpoint.info, std::nullopt);
  add_line(out, "files", fmt::format("{}, {}", checkpoint.snapshots.size(), format_size(sizes.file_bytes)));
  add_line(out, "depth", fmt::format("{}", sizes.depth));
  out += '\n' + render_global(checkpoint, sizes, common) + '\n';
  print_result(out + render_roles(sizes, common.table_width()));
  return kExitOk;
}

// ---- files and folders that a training wrote

std::string render_state(const std::string& path, std::string_view kind, std::uint64_t file_bytes, const State& state,
                         const Sizes& sizes, const CommonOptions& common) {
  std::string out;
  add_line(out, "file", fmt::format("{} ({})", printable(path), format_size(file_bytes)));
  add_line(out, "format", kind);
  add_metadata(out, state.metadata, common.verbose);
  Table tensors({{"tensor", Align::left, Narrow::middle}, {"dtype"}, {"shape"}, {"role"}, {"raw", Align::right}});
  for (const TensorSource& source : state.tensors) {
    tensors.add_row({printable(source.info.name), printable(source.info.dtype_name), format_shape(source.info.shape),
                     std::string(role_name(source.info.role)), format_size(source.info.size_bytes)});
  }
  if (!tensors.empty()) out += '\n' + tensors.render(common.table_width());
  return out + '\n' + render_roles(sizes, common.table_width());
}

Result<int> inspect_input(const std::string& path, std::string_view kind, const FolderState& input,
                          const CommonOptions& common) {
  const State& state = input.state;
  const std::uint64_t file_bytes = input.bytes;
  Sizes sizes;
  for (const TensorSource& source : state.tensors) {
    const RoleSizes own{1, source.info.element_count(), source.info.size_bytes, source.info.size_bytes};
    sizes.roles[source.info.role] += own;
    sizes.total += own;
  }
  sizes.overhead_bytes = file_bytes - std::min(file_bytes, sizes.total.raw_bytes);
  sizes.total.stored_bytes = file_bytes;
  if (!common.json) {
    print_result(render_state(path, kind, file_bytes, state, sizes, common));
    return kExitOk;
  }
  Json document = {{"path", path}, {"kind", kind}, {"file_bytes", file_bytes}};
  document["metadata"] = metadata_json(state.metadata);
  document["tensors"] = Json::array();
  for (const TensorSource& source : state.tensors) document["tensors"].push_back(source.info);
  document["roles"] = roles_json(sizes.roles);
  print_json(document);
  return kExitOk;
}

Result<int> inspect(const InspectOptions& options, const CommonOptions& common) {
  BITSNAP_ASSIGN(auto run, find_run_or_file(options.path));
  if (run) {
    BITSNAP_ASSIGN(const WholeCheckpoint checkpoint, open_whole(*run, options.shard));
    if (checkpoint.tensors != nullptr) return inspect_whole(checkpoint, common);
    return inspect_snapshot(checkpoint.snapshots.front(), &checkpoint, options.shard.value_or(0), common);
  }
  BITSNAP_ASSIGN(const std::optional<FolderState> input, find_input(options.path));
  if (input) {
    if (!common.quiet) warn_of_plain_files(*input);
    return inspect_input(options.path, input->container.empty() ? "folder" : input->container, *input, common);
  }
  BITSNAP_ASSIGN(auto snapshot, open_snapshot(options.path));
  return inspect_snapshot(snapshot, nullptr, 0, common);
}

}  // namespace

Command add_inspect(CLI::App& program, const CommonOptions& common) {
  auto [app, options] = new_command<InspectOptions>(program, kBothGroup, "inspect",
                                                    "Show what a file holds, and what each tensor costs and why");
  add_argument(*app, "FILE", options->path, "A snapshot, a checkpoint as RUN@STEP, or a file or folder with tensors");
  add_shard_option(*app, options->shard);
  app->footer("-v shows metadata and mixed codecs in full; --json -v every chunk.");
  return {app, [options, &common] { return inspect(*options, common); }};
}

}  // namespace bitsnap::cli
