#include "store/commit_record.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/quote_name.hpp"
#include "base/try.hpp"
#include "json/json_fields.hpp"
#include "store/sealed_json.hpp"
#include "store/settings_json.hpp"

namespace bitsnap::store {

using json::json_field;
using json::JsonDefault;
using json::JsonField;
using json::JsonNeed;
using json::JsonReader;
using json::JsonWriter;

namespace {

constexpr std::string_view kCommitKey = "commit";
constexpr std::string_view kShardKey = "shard";
constexpr std::string_view kRunKey = "store";

struct AttemptFormat : JsonDefault {
  static Result<void> read(JsonReader& in, std::string& to) {
    BITSNAP_ASSIGN(to, in.read_string());
    return is_attempt_name(to) ? Result<void>() : fail(ErrorKind::corrupt, "expected an attempt name");
  }
};

// NaN and infinities are numbers, too: a loss may be one.
std::optional<double> parse_metric(std::string_view text) noexcept {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// An object of strings.
struct MetadataFormat : JsonDefault {
  static Result<void> read(JsonReader& in, std::vector<std::pair<std::string, std::string>>& to) {
    return in.read_object([&](std::string_view key) -> Result<void> {
      std::string name(key);
      BITSNAP_ASSIGN(std::string value, in.read_string());
      to.emplace_back(std::move(name), std::move(value));
      return {};
    });
  }
  static void write(JsonWriter& out, const std::vector<std::pair<std::string, std::string>>& from) {
    out.begin_object();
    for (const auto& [key, value] : from) {
      out.key(key);
      out.string(value);
    }
    out.end_object();
  }
};

// An object of numbers as text, because the JSON of records has whole numbers only.
struct MetricsFormat : JsonDefault {
  static Result<void> read(JsonReader& in, std::vector<std::pair<std::string, double>>& to) {
    return in.read_object([&](std::string_view key) -> Result<void> {
      std::string name(key);
      BITSNAP_ASSIGN(const std::string text, in.read_string());
      const std::optional<double> value = parse_metric(text);
      if (!value) return fail(ErrorKind::corrupt, fmt::format("the metric {} is no number", quote_name(name)));
      to.emplace_back(std::move(name), *value);
      return {};
    });
  }
  static void write(JsonWriter& out, const std::vector<std::pair<std::string, double>>& from) {
    out.begin_object();
    for (const auto& [key, value] : from) {
      out.key(key);
      out.string(fmt::format("{}", value));
    }
    out.end_object();
  }
};

// Its value was checked when the record was unsealed.
template <typename Record>
constexpr JsonField<Record> format_field() {
  return {.key = "format",
          .read = [](JsonReader& in, Record&) { return in.skip_value(); },
          .write = [](JsonWriter& out, const Record&) { out.number(std::uint64_t{kStoreFormat}); }};
}

// The fields of the header, and then the record's own.
template <typename Record, typename... Fields>
constexpr auto record_fields(Fields... own) {
  return std::array{
      format_field<Record>(),
      json_field<&CommitHeader::step, JsonDefault, Record>("step"),
      json_field<&CommitHeader::time_unix_ms, JsonDefault, Record>("time_unix_ms"),
      json_field<&CommitHeader::policy, JsonDefault, Record>("policy"),
      json_field<&CommitHeader::attempt, AttemptFormat, Record>("attempt", JsonNeed::optional),
      json_field<&CommitHeader::base, JsonDefault, Record>("base", JsonNeed::optional),
      json_field<&CommitHeader::links, JsonDefault, Record>("links"),
      json_field<&CommitHeader::directory_sync, JsonDefault, Record>("directory_sync", JsonNeed::defaulted),
      json_field<&CommitHeader::coded_share, JsonDefault, Record>("coded_share", JsonNeed::optional),
      json_field<&CommitHeader::coded_age, JsonDefault, Record>("coded_age", JsonNeed::optional),
      json_field<&CommitHeader::metrics, MetricsFormat, Record>("metrics", JsonNeed::optional),
      own...};
}

}  // namespace

// Fields are written in the order of their table.
static constexpr auto json_fields(std::type_identity<StepReference>) {
  return std::array{json_field<&StepReference::id>("id"), json_field<&StepReference::step>("step"),
                    json_field<&StepReference::shard>("shard"),
                    json_field<&StepReference::standalone>("standalone", JsonNeed::optional)};
}

static constexpr auto json_fields(std::type_identity<ShardFile>) {
  return std::array{json_field<&ShardFile::file>("file").must(
                        "a snapshot file name", [](const ShardFile& file) { return is_snapshot_file_name(file.file); }),
                    json_field<&ShardFile::id>("id"),
                    json_field<&ShardFile::bytes>("bytes"),
                    json_field<&ShardFile::raw_bytes>("raw_bytes"),
                    json_field<&ShardFile::depth>("depth"),
                    json_field<&ShardFile::references>("references"),
                    json_field<&ShardFile::is_link>("link", JsonNeed::optional)};
}

static constexpr auto json_fields(std::type_identity<CommitRecord>) {
  static_assert(kMaxShards == 99'999);
  return record_fields<CommitRecord>(
      json_field<&CommitRecord::shards>("shards").must(
          "an array of 1 to 99999 shards",
          [](const CommitRecord& record) { return !record.shards.empty() && record.shards.size() <= kMaxShards; }),
      json_field<&CommitRecord::metadata, MetadataFormat>("metadata", JsonNeed::optional),
      json_field<&CommitRecord::files>("files", JsonNeed::optional)
          .must("a file of files without references",
                [](const CommitRecord& record) {
                  return !record.files || (attempt_of_files(record.files->file) && record.files->references.empty());
                }),
      json_field<&CommitRecord::damaged_tensors>("damaged", JsonNeed::optional));
}

static constexpr auto json_fields(std::type_identity<ShardRecord>) {
  return record_fields<ShardRecord>(json_field<&ShardRecord::shard>("shard"),
                                    json_field<&ShardRecord::shards>("shards"), json_field<&ShardRecord::file>("file"));
}

static constexpr std::string_view kRunIdForm = "32 lower-case hexadecimal digits";

static constexpr auto json_fields(std::type_identity<RunOrigin>) {
  return std::array{
      json_field<&RunOrigin::id>("id").must(
          kRunIdForm, [](const RunOrigin& origin) { return SnapshotId::from_hex(origin.id).has_value(); }),
      json_field<&RunOrigin::branch>("branch", JsonNeed::optional)
          .must("the name of a branch",
                [](const RunOrigin& origin) { return origin.branch.empty() || is_branch_name(origin.branch); }),
      json_field<&RunOrigin::step>("step")};
}

// The settings are further keys of the same object.
static constexpr auto json_fields(std::type_identity<RunRecord>) {
  return std::array{
      format_field<RunRecord>(),
      json_field<&RunRecord::id>("id").must(
          kRunIdForm, [](const RunRecord& record) { return SnapshotId::from_hex(record.id).has_value(); }),
      json_field<&RunRecord::origin>("origin", JsonNeed::optional)};
}

namespace {

// A shard that waits for its commit is not coded against a later step, and no step is coded against itself.
enum class Allowed : std::uint8_t { earlier, other };

Result<void> check_steps(const CommitHeader& header, const ShardFile& file, Allowed allowed) {
  const auto is_allowed = [&](std::uint64_t step) {
    return allowed == Allowed::earlier ? step < header.step : step != header.step;
  };
  const std::string_view expected = allowed == Allowed::earlier ? "an earlier step" : "another step";
  if (header.base && !is_allowed(*header.base)) {
    return fail(ErrorKind::corrupt, fmt::format("base {} of step {} must be {}", *header.base, header.step, expected));
  }
  for (const StepReference& reference : file.references) {
    if (is_allowed(reference.step)) continue;
    return fail(ErrorKind::corrupt,
                fmt::format("step {} refers to step {}, expected {}", header.step, reference.step, expected));
  }
  return {};
}

// A file that many shards named would be read as often.
Result<void> check_files(const CommitRecord& record) {
  std::vector<std::string_view> names;
  names.reserve(record.shards.size());
  for (const ShardFile& file : record.shards) names.push_back(file.file);
  if (record.files) names.push_back(record.files->file);
  std::ranges::sort(names);
  const auto repeated = std::ranges::adjacent_find(names);
  if (repeated == names.end()) return {};
  return fail(ErrorKind::corrupt, fmt::format("two shards name the file {}", quote_name(*repeated)));
}

Result<void> read_commit(JsonReader& in, CommitRecord& record, std::uint64_t step) {
  BITSNAP_TRY(read_json(in, record));
  if (record.step != step) {
    return fail(ErrorKind::corrupt, fmt::format("the record names step {}, expected {}", record.step, step));
  }
  std::uint64_t bytes = 0;
  for (std::size_t number = 0; number < record.file_count(); ++number) {
    const ShardFile& file = record.file(number);
    BITSNAP_TRY(check_steps(record, file, Allowed::other));
    // Bounded, so that no sum of sizes overflows.
    const auto sum = checked_add(bytes, checked_add(file.bytes, file.raw_bytes).value_or(~std::uint64_t{0}));
    if (!sum || *sum > std::uint64_t{1} << 62)
      return fail(ErrorKind::corrupt, "the sizes of the shards add up to more than 2^62 bytes");
    bytes = *sum;
  }
  return check_files(record);
}

Result<void> read_shard(JsonReader& in, ShardRecord& record) {
  BITSNAP_TRY(read_json(in, record));
  return check_steps(record, record.file, Allowed::earlier);
}

Result<void> read_run(JsonReader& in, RunRecord& record) {
  CodingSettings& settings = record.settings;
  settings = {.objective = Objective::ratio};  // of stores without this key
  const auto read_other = [&](JsonReader& from, std::string_view key) {
    return read_setting(from, key, settings, SettingsScope::remembered);
  };
  BITSNAP_TRY(json::read_json_fields<RunRecord>(in, record, json::json_fields_of<RunRecord>(), read_other));
  if (settings.store_speed == 0U) return json::bad_json_key("store_speed", "10^6 to 10^12");
  if (!settings.policy) return tl::unexpected(json::missing_json_key("policy"));
  if (!settings.base) return tl::unexpected(json::missing_json_key("base"));
  if (!settings.max_depth) return tl::unexpected(json::missing_json_key("max_depth"));
  return {};
}

}  // namespace

std::vector<std::pair<std::string, double>> metrics_of(
    const std::vector<std::pair<std::string, std::string>>& metadata) {
  constexpr std::string_view kPrefix = "metrics.";
  std::vector<std::pair<std::string, double>> metrics;
  for (const auto& [key, text] : metadata) {
    if (!key.starts_with(kPrefix) || key.size() == kPrefix.size()) continue;
    if (const std::optional<double> value = parse_metric(text))
      metrics.emplace_back(key.substr(kPrefix.size()), *value);
  }
  return metrics;
}

Result<CommitRecord> read_commit_record(os::FileSystem& file_system, const RunLayout& layout, std::uint64_t step,
                                        bool retired) {
  const std::string path = layout.step_file(step, record_file_name(retired));
  CommitRecord record;
  BITSNAP_TRY(
      read_sealed_json(file_system, path, kCommitKey, [&](JsonReader& in) { return read_commit(in, record, step); }));
  return record;
}

std::string serialize_commit_record(const CommitRecord& record) {
  return seal_json(kCommitKey, json::serialize_json(record));
}

namespace {

// What a reader would refuse must not replace anything.
Result<void> check_written(const CommitHeader& header, std::span<const ShardFile> files, Allowed allowed) {
  for (const ShardFile& file : files) {
    if (Result<void> checked = check_steps(header, file, allowed); !checked) {
      return fail(ErrorKind::internal, checked.error().message());
    }
  }
  return {};
}

}  // namespace

Result<bool> write_commit_record(os::FileSystem& file_system, const RunLayout& layout, const CommitRecord& record) {
  BITSNAP_TRY(check_written(record, record.shards, Allowed::earlier));
  return write_sealed_json(file_system, layout.commit(record.step), kCommitKey, json::serialize_json(record), false);
}

Result<bool> copy_commit_record(os::FileSystem& file_system, const RunLayout& layout, const CommitRecord& record) {
  BITSNAP_TRY(check_written(record, record.shards, Allowed::other));
  return write_sealed_json(file_system, layout.commit(record.step), kCommitKey, json::serialize_json(record), false);
}

Result<bool> replace_commit_record(os::FileSystem& file_system, const RunLayout& layout, const CommitRecord& record,
                                   bool retired) {
  const std::string path = layout.step_file(record.step, record_file_name(retired));
  BITSNAP_TRY(check_written(record, record.shards, Allowed::other));
  return write_sealed_json(file_system, path, kCommitKey, json::serialize_json(record), true);
}

Result<ShardRecord> read_shard_record(os::FileSystem& file_system, const std::string& path) {
  ShardRecord record;
  BITSNAP_TRY(read_sealed_json(file_system, path, kShardKey, [&](JsonReader& in) { return read_shard(in, record); }));
  return record;
}

Result<bool> write_shard_record(os::FileSystem& file_system, const std::string& path, const ShardRecord& record) {
  BITSNAP_TRY(check_written(record, {&record.file, 1}, Allowed::earlier));
  return write_sealed_json(file_system, path, kShardKey, json::serialize_json(record), true);
}

Result<RunRecord> read_run_record(os::FileSystem& file_system, const std::string& path) {
  RunRecord record;
  BITSNAP_TRY(read_sealed_json(file_system, path, kRunKey, [&](JsonReader& in) { return read_run(in, record); }));
  return record;
}

Result<bool> write_run_record(os::FileSystem& file_system, const std::string& path, const RunRecord& record,
                              bool overwrite) {
  JsonWriter out;
  out.begin_object();
  json::write_json_members(out, record, json::json_fields_of<RunRecord>());
  write_settings(out, record.settings, SettingsScope::remembered);
  out.end_object();
  return write_sealed_json(file_system, path, kRunKey, out.text(), overwrite);
}

bool refers_to(const ShardFile& file, const std::set<std::uint64_t>& steps) {
  return std::ranges::any_of(file.references, [&](const auto& reference) { return steps.contains(reference.step); });
}

bool refers_to(const CommitRecord& record, const std::set<std::uint64_t>& steps) {
  return std::ranges::any_of(record.shards, [&](const ShardFile& file) { return refers_to(file, steps); });
}

StoreDamage record_damage(std::uint64_t step, bool retired, Error error) {
  return {step, RunLayout::relative_file(step, record_file_name(retired)), "", std::move(error)};
}

std::uint64_t raw_bytes(const CommitRecord& record) {
  std::uint64_t bytes = 0;
  for (const ShardFile& file : record.shards) bytes += file.raw_bytes;
  return bytes;
}

std::uint64_t stored_bytes(const CommitRecord& record) {
  std::uint64_t bytes = 0;
  for (const ShardFile& file : record.shards) bytes += file.is_link ? 0 : file.bytes;
  return bytes + (record.files ? record.files->bytes : 0);
}

void settle_links(CommitRecord& record) {
  const auto content_of = [](const ShardFile& file) { return std::pair(file.id, file.bytes); };
  std::set<std::pair<SnapshotId, std::uint64_t>> counted;
  for (const ShardFile& file : record.shards) {
    if (!file.is_link) counted.insert(content_of(file));
  }
  for (ShardFile& file : record.shards) {
    if (file.is_link && counted.insert(content_of(file)).second) file.is_link = false;
  }
}

Checkpoint checkpoint_info(const CommitRecord& record, std::uint64_t record_bytes) {
  Checkpoint info;
  info.step = record.step;
  info.time_unix_ms = record.time_unix_ms;
  info.raw_bytes = raw_bytes(record);
  info.stored_bytes = record_bytes + stored_bytes(record);
  for (const ShardFile& file : record.shards) info.depth = std::max(info.depth, file.depth);
  info.shards = static_cast<std::uint32_t>(record.shards.size());
  info.base = record.base;
  info.links = record.links;
  info.metadata = record.metadata;
  info.metrics = record.metrics;
  if (record.damaged_tensors > 0) {
    info.damage = Error(ErrorKind::corrupt,
                        fmt::format("step {} is kept as damaged: a repair could not read {} of its tensors; all others "
                                    "can be read with --partial, or partial=True in Python",
                                    record.step, record.damaged_tensors));
  }
  return info;
}

Result<void> check_place(const ShardPlace& place) {
  if (place.shards == 0 || place.shards > kMaxShards) {
    return fail(ErrorKind::invalid_argument, fmt::format("shards must be 1 to {}, got {}", kMaxShards, place.shards));
  }
  if (place.shard >= place.shards) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("shard must be below shards = {}, got {}", place.shards, place.shard));
  }
  if (!is_attempt_name(place.attempt)) {
    return fail(ErrorKind::invalid_argument,
                fmt::format("attempt must have 1 to {} of the characters a-z, 0-9 and '-', got '{}'", kMaxAttemptBytes,
                            place.attempt));
  }
  return {};
}

}  // namespace bitsnap::store
