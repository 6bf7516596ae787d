// Records to JSON and back.
#include "store/commit_record.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/try.hpp"
#include "store/sealed_json.hpp"
#include "store/settings_json.hpp"

namespace bitsnap::store {
namespace {

constexpr std::string_view kCommitKey = "commit";
constexpr std::string_view kShardKey = "shard";
constexpr std::string_view kRunKey = "store";

Json header_json(const CommitHeader& header) {
  Json json = {{"format", kStoreFormat}, {"step", header.step}, {"time_unix_ms", header.time_unix_ms}};
  json["policy"] = header.policy;
  if (!header.attempt.empty()) json["attempt"] = header.attempt;
  if (header.base) json["base"] = *header.base;
  json["links"] = header.links;
  json["directory_sync"] = header.directory_sync;
  return json;
}

Json file_json(const ShardFile& file) {
  Json references = Json::array();
  for (const StepReference& reference : file.references) {
    Json entry = {{"id", reference.id.to_hex()}, {"step", reference.step}, {"shard", reference.shard}};
    if (reference.standalone) entry["standalone"] = true;
    references.push_back(std::move(entry));
  }
  return {{"file", file.file},           {"id", file.id.to_hex()}, {"bytes", file.bytes},
          {"raw_bytes", file.raw_bytes}, {"depth", file.depth},    {"references", std::move(references)}};
}

Result<SnapshotId> json_id(const Json& json) {
  BITSNAP_ASSIGN(const std::string text, json_string(json, "id"));
  const std::optional<SnapshotId> id = SnapshotId::from_hex(text);
  if (!id) return fail(ErrorKind::corrupt, "key \"id\": expected 32 lower-case hexadecimal digits");
  return *id;
}

Result<void> read_header(const Json& json, CommitHeader& header) {
  BITSNAP_ASSIGN(header.step, json_unsigned(json, "step"));
  BITSNAP_ASSIGN(header.time_unix_ms, json_integer(json, "time_unix_ms"));
  BITSNAP_ASSIGN(header.policy, json_string(json, "policy"));
  if (json_member(json, "attempt") != nullptr) {
    BITSNAP_ASSIGN(header.attempt, json_string(json, "attempt"));
    if (!is_attempt_name(header.attempt)) return fail(ErrorKind::corrupt, "key \"attempt\": expected a name");
  }
  if (json_member(json, "base") != nullptr) {
    BITSNAP_ASSIGN(header.base, json_unsigned(json, "base"));
    if (*header.base >= header.step) {
      return fail(ErrorKind::corrupt,
                  fmt::format("base {} of step {}: expected an earlier step", *header.base, header.step));
    }
  }
  BITSNAP_ASSIGN(header.links, json_unsigned_32(json, "links"));
  BITSNAP_ASSIGN(header.directory_sync, json_bool(json, "directory_sync", true));
  return {};
}

Result<ShardFile> read_file(const Json& json, std::uint64_t step) {
  ShardFile file;
  BITSNAP_ASSIGN(file.file, json_string(json, "file"));
  if (!is_snapshot_file_name(file.file)) return fail(ErrorKind::corrupt, "key \"file\": expected a file name");
  BITSNAP_ASSIGN(file.id, json_id(json));
  BITSNAP_ASSIGN(file.bytes, json_unsigned(json, "bytes"));
  BITSNAP_ASSIGN(file.raw_bytes, json_unsigned(json, "raw_bytes"));
  BITSNAP_ASSIGN(file.depth, json_unsigned_32(json, "depth"));
  BITSNAP_ASSIGN(const Json::array_t* const references, json_array(json, "references"));
  for (const Json& entry : *references) {
    StepReference reference;
    BITSNAP_ASSIGN(reference.id, json_id(entry));
    BITSNAP_ASSIGN(reference.step, json_unsigned(entry, "step"));
    BITSNAP_ASSIGN(reference.shard, json_unsigned_32(entry, "shard"));
    BITSNAP_ASSIGN(reference.standalone, json_bool(entry, "standalone", false));
    if (reference.step >= step) {
      return fail(ErrorKind::corrupt,
                  fmt::format("step {} refers to step {}: expected an earlier one", step, reference.step));
    }
    file.references.push_back(reference);
  }
  return file;
}

Result<CommitRecord> parse_commit(const Json& json, std::uint64_t step) {
  CommitRecord record;
  BITSNAP_TRY(read_header(json, record));
  if (record.step != step) {
    return fail(ErrorKind::corrupt, fmt::format("the record is of step {}, expected {}", record.step, step));
  }
  BITSNAP_ASSIGN(const Json::array_t* const shards, json_array(json, "shards"));
  if (shards->empty() || shards->size() > kMaxShards) {
    return fail(ErrorKind::corrupt, fmt::format("key \"shards\": expected an array of 1 to {}", kMaxShards));
  }
  std::uint64_t bytes = 0;
  for (const Json& entry : *shards) {
    BITSNAP_ASSIGN(ShardFile file, read_file(entry, step));
    // So that no sum over them can overflow.
    const auto sum = checked_add(bytes, checked_add(file.bytes, file.raw_bytes).value_or(~std::uint64_t{0}));
    if (!sum || *sum > std::uint64_t{1} << 62) return fail(ErrorKind::corrupt, "sizes beyond 2^62 bytes");
    bytes = *sum;
    record.shards.push_back(std::move(file));
  }
  return record;
}

Json commit_json(const CommitRecord& record) {
  Json json = header_json(record);
  Json shards = Json::array();
  for (const ShardFile& file : record.shards) shards.push_back(file_json(file));
  json["shards"] = std::move(shards);
  return json;
}

}  // namespace

Result<CommitRecord> read_commit_record(os::FileSystem& file_system, const RunLayout& layout, std::uint64_t step,
                                        bool retired) {
  const std::string path = retired ? layout.retired(step) : layout.commit(step);
  BITSNAP_ASSIGN(const Json json, read_sealed_json(file_system, path, kCommitKey));
  auto record = parse_commit(json, step);
  if (!record) return tl::unexpected(std::move(record).error().within(path));
  return record;
}

std::string serialize_commit_record(const CommitRecord& record) { return seal_json(kCommitKey, commit_json(record)); }

Result<bool> write_commit_record(os::FileSystem& file_system, const RunLayout& layout, const CommitRecord& record) {
  return write_sealed_json(file_system, layout.commit(record.step), kCommitKey, commit_json(record), false);
}

Result<bool> replace_commit_record(os::FileSystem& file_system, const RunLayout& layout, const CommitRecord& record,
                                   bool retired) {
  const std::string path = retired ? layout.retired(record.step) : layout.commit(record.step);
  return write_sealed_json(file_system, path, kCommitKey, commit_json(record), true);
}

Result<ShardRecord> read_shard_record(os::FileSystem& file_system, const std::string& path) {
  BITSNAP_ASSIGN(const Json json, read_sealed_json(file_system, path, kShardKey));
  const auto parse = [&]() -> Result<ShardRecord> {
    ShardRecord record;
    BITSNAP_TRY(read_header(json, record));
    BITSNAP_ASSIGN(record.shard, json_unsigned_32(json, "shard"));
    BITSNAP_ASSIGN(record.shards, json_unsigned_32(json, "shards"));
    const Json* const file = json_member(json, "file");
    if (file == nullptr) return fail(ErrorKind::corrupt, "key \"file\" is missing");
    BITSNAP_ASSIGN(record.file, read_file(*file, record.step));
    return record;
  };
  auto record = parse();
  if (!record) return tl::unexpected(std::move(record).error().within(path));
  return record;
}

Result<bool> write_shard_record(os::FileSystem& file_system, const std::string& path, const ShardRecord& record) {
  Json json = header_json(record);
  json["shard"] = record.shard;
  json["shards"] = record.shards;
  json["file"] = file_json(record.file);
  return write_sealed_json(file_system, path, kShardKey, json, true);
}

Result<RunRecord> read_run_record(os::FileSystem& file_system, const std::string& path) {
  BITSNAP_ASSIGN(const Json json, read_sealed_json(file_system, path, kRunKey));
  const auto parse = [&]() -> Result<RunRecord> {
    RunRecord record;
    BITSNAP_ASSIGN(record.id, json_string(json, "id"));
    if (!SnapshotId::from_hex(record.id)) return fail(ErrorKind::corrupt, "key \"id\": expected 32 digits");
    record.settings = {.objective = Objective::ratio};  // of stores made before there were others
    BITSNAP_TRY(take_settings(json, record.settings));
    if (record.settings.store_speed == 0U) return fail(ErrorKind::corrupt, "key \"store_speed\": expected no 0");
    if (!record.settings.policy) return fail(ErrorKind::corrupt, "key \"policy\": expected a string");
    if (!record.settings.base) return fail(ErrorKind::corrupt, "key \"base\": expected a string");
    if (!record.settings.max_depth) return fail(ErrorKind::corrupt, "key \"max_depth\": expected an unsigned integer");
    return record;
  };
  auto record = parse();
  if (!record) return tl::unexpected(std::move(record).error().within(path));
  return record;
}

Result<bool> write_run_record(os::FileSystem& file_system, const std::string& path, const RunRecord& record,
                              bool overwrite) {
  Json json = {{"format", kStoreFormat}, {"id", record.id}};
  put_settings(json, record.settings, SettingsToWrite::remembered);
  return write_sealed_json(file_system, path, kRunKey, json, overwrite);
}

CheckpointInfo checkpoint_info(const CommitRecord& record, std::uint64_t record_bytes) {
  CheckpointInfo info;
  info.step = record.step;
  info.time_unix_ms = record.time_unix_ms;
  info.stored_bytes = record_bytes;
  for (const ShardFile& file : record.shards) {
    info.raw_bytes += file.raw_bytes;
    info.stored_bytes += file.bytes;
    info.depth = std::max(info.depth, file.depth);
  }
  info.shards = static_cast<std::uint32_t>(record.shards.size());
  info.base = record.base;
  info.links = record.links;
  return info;
}

}  // namespace bitsnap::store
