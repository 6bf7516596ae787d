// Rebuilds commit records from the indexes of snapshot files.
#include "store/record_rebuild.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/try.hpp"
#include "codec/codec_id.hpp"
#include "container/file_reader.hpp"

namespace bitsnap::store {
namespace {

// How a file uses one of its bases, according to its index.
struct BaseUse {
  bool standalone = true;
  bool is_built_upon = false;  // a chunk is coded against it, not merely unchanged
};

struct Rebuilt {
  ShardFile file;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string policy;
  std::optional<std::uint64_t> base;
};

Result<Rebuilt> rebuild_file(os::FileSystem& file_system, const RunLayout& layout, std::uint64_t step,
                             const std::string& name, const FindSnapshot& find, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(auto opened, file_system.open(layout.step_file(step, name)));
  BITSNAP_ASSIGN(const auto reader, container::FileReader::open(std::move(opened), limits));
  const container::Index& index = reader->index();
  Rebuilt rebuilt;
  rebuilt.policy = index.encoding.policy;
  rebuilt.metadata = index.content.metadata;
  rebuilt.file.file = name;
  rebuilt.file.id = index.id;
  rebuilt.file.bytes = reader->file_bytes();
  for (const TensorInfo& tensor : index.content.tensors) {
    if (!tensor.alias_of) rebuilt.file.raw_bytes += tensor.size_bytes;
  }
  std::vector<BaseUse> uses(index.encoding.bases.size());
  for (std::size_t stream = 0; stream < index.streams.streams.size(); ++stream) {
    for (std::uint64_t chunk = index.streams.first_chunk[stream]; chunk < index.streams.first_chunk[stream + 1];
         ++chunk) {
      const container::ChunkEntry& entry = index.chunks[static_cast<std::size_t>(chunk)];
      rebuilt.file.depth = std::max<std::uint32_t>(rebuilt.file.depth, entry.depth);
      for (const std::uint8_t input : entry.inputs) {
        if (input == container::kNoInput) continue;
        const auto& base = index.encoding.streams[stream].inputs[input].base;
        if (!base) continue;
        uses[*base].standalone = uses[*base].standalone && entry.depth <= 1;
        uses[*base].is_built_upon =
            uses[*base].is_built_upon || entry.codec != static_cast<std::uint16_t>(codec::CodecId::same);
      }
    }
  }
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const SnapshotId& id = index.encoding.bases[i].id;
    std::optional<StepReference> found = find(id, step);
    if (!found) {
      return fail(ErrorKind::corrupt,
                  fmt::format("{}: base {} was not found in any other checkpoint", name, id.to_hex()));
    }
    found->standalone = found->standalone && uses[i].standalone;
    if (uses[i].is_built_upon) rebuilt.base = std::max(rebuilt.base.value_or(0), found->step);
    rebuilt.file.references.push_back(*found);
  }
  return rebuilt;
}

// Finds the caller's files and the metadata of the record's attempt. Of several, a killed writer has left the older
// ones. If the newest cannot be read, the record names it nevertheless, so that a verification reports it.
Result<void> rebuild_files(os::FileSystem& file_system, const RunLayout& layout, const std::vector<std::string>& names,
                           CommitRecord& record, const DecodeLimits& limits) {
  std::optional<std::int64_t> newest_ns;
  for (const std::string& name : names) {
    if (attempt_of_files(name) != record.attempt) continue;
    BITSNAP_ASSIGN(const os::FileInfo info, file_system.stat(layout.step_file(record.step, name)));
    if (newest_ns && info.modified_ns <= *newest_ns) continue;
    newest_ns = info.modified_ns;
    record.files = ShardFile{.file = name, .id = {}, .bytes = info.size_bytes, .references = {}};
  }
  if (!record.files) return {};
  const FindSnapshot none = [](const SnapshotId&, std::uint64_t) { return std::nullopt; };
  auto rebuilt = rebuild_file(file_system, layout, record.step, record.files->file, none, limits);
  if (!rebuilt) return is_damage(rebuilt.error()) ? Result<void>() : tl::unexpected(std::move(rebuilt).error());
  record.files = std::move(rebuilt->file);
  record.metadata = std::move(rebuilt->metadata);
  return {};
}

}  // namespace

Result<CommitRecord> rebuild_commit_record(os::FileSystem& file_system, const RunLayout& layout, std::uint64_t step,
                                           const FindSnapshot& find, const DecodeLimits& limits) {
  BITSNAP_ASSIGN(const auto names, file_system.list_directory(layout.step_directory(step)));
  // Files of one attempt share the number of shards and the attempt's name. Each shard may have been rewritten.
  std::map<std::pair<std::uint32_t, std::string>, std::vector<std::multimap<std::uint32_t, std::string>>> groups;
  for (const std::string& name : names) {
    const std::optional<ShardFileName> parsed = parse_shard_file_name(name);
    if (!parsed) continue;
    auto& shards = groups[{parsed->shards, parsed->attempt}];
    shards.resize(parsed->shards);
    shards[parsed->shard].emplace(parsed->rewriting, name);
  }
  std::erase_if(groups, [](const auto& group) {
    return std::ranges::any_of(group.second, [](const auto& shard) { return shard.empty(); });
  });
  if (groups.size() != 1) {
    return fail(ErrorKind::corrupt,
                fmt::format("expected all shard files of one attempt, found {} complete attempts", groups.size()));
  }

  CommitRecord record;
  record.step = step;
  record.attempt = groups.begin()->first.second;
  record.directory_sync = false;  // unknown
  if (!record.attempt.empty() && !is_attempt_name(record.attempt)) {
    return fail(ErrorKind::corrupt,
                fmt::format("invalid attempt '{}' in the names of the shard files", record.attempt));
  }
  std::set<std::uint64_t> seen;  // files that an earlier shard has as well
  for (const auto& candidates : groups.begin()->second) {
    Result<Rebuilt> rebuilt = fail(ErrorKind::corrupt, "no file");
    for (const auto& [rewriting, name] : std::views::reverse(candidates)) {
      rebuilt = rebuild_file(file_system, layout, step, name, find, limits);
      if (rebuilt) break;
    }
    if (!rebuilt) return tl::unexpected(std::move(rebuilt).error());
    const auto info = file_system.stat(layout.step_file(step, rebuilt->file.file));
    if (info) {
      record.time_unix_ms = std::max(record.time_unix_ms, info->modified_ns / 1'000'000);
      rebuilt->file.is_link = !seen.insert(info->file_id).second;
    }
    if (rebuilt->base) {
      record.base = std::max(record.base.value_or(0), *rebuilt->base);
      record.links = std::max(record.links, rebuilt->file.depth);
    }
    record.policy = rebuilt->policy;
    if (record.metrics.empty()) record.metrics = metrics_of(rebuilt->metadata);
    record.shards.push_back(std::move(rebuilt->file));
  }
  BITSNAP_TRY(rebuild_files(file_system, layout, names, record, limits));
  return record;
}

}  // namespace bitsnap::store
